"""Houses and game files as dataset rows."""

from __future__ import annotations

from dataclasses import asdict
from typing import cast

from verl_agentic import ConfigError, EnvRow
from verl_agentic.bridges.task_rows import Split, draw_rows
from verl_agentic.bridges.text_world import solved_row

from .game_files import game_rows
from .house import Kind
from .house_maker import KINDS, make_house
from .world import MAX_STEPS, HouseholdWorld, Presentation, Style


def make_rows(
    *,
    split: Split,
    count: int,
    seed: int,
    task: str | None = None,
    style: Style = "sentences",
    admissible: bool = True,
    receptacles: int = 12,
    things: int = 10,
    max_steps: int = MAX_STEPS,
    games: str | None = None,
) -> list[EnvRow]:
    """Returns `count` different houses; equal arguments give equal houses.

    Args:
        split: the houses of the splits are disjoint.
        count: number of rows.
        seed: of the houses.
        task: kind of the task; None: all of them in turn.
        style: `sentences` as in ALFWorld, or `program` for the steps of VirtualHome's programs.
        admissible: whether observations list the possible commands; only with `sentences`.
        receptacles: maximum number of receptacles.
        things: number of things besides those of the goal.
        max_steps: maximum steps of an episode.
        games: folder with games of TextWorld or ALFWorld, which are used in place of houses.

    Raises:
        ConfigError: an unknown task, a value out of range, or too few games.
    """
    if games is not None:
        return game_rows(games, split=split, count=count, seed=seed, max_steps=max_steps)
    if receptacles < 4 or things < 0:
        raise ConfigError(f"receptacles must be at least 4 and things at least 0, got {receptacles} and {things}")
    presentation = Presentation(style=style, admissible=admissible, max_steps=max_steps)

    def draw(kind: str, number: int) -> EnvRow | None:
        house = make_house(cast("Kind", kind), number, receptacles=receptacles, things=things)
        return solved_row(
            HouseholdWorld(house, presentation),
            bridge="household",
            task=kind,
            number=number,
            max_steps=max_steps,
            house=house,
            shown=asdict(presentation),
        )

    return draw_rows(KINDS, draw, task=task, split=split, count=count, seed=seed)
