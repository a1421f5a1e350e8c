"""Games as dataset rows; train and test share neither a seed nor a board."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal

from verl_agentic import ConfigError, EnvRow, Message
from verl_agentic.base.errors import boundary

from .act import SEPARATOR, Presentation
from .games import GAMES
from .games.game import Game, Style

Split = Literal["train", "test"]
_TEST_PART = 5  # every fifth seed, and every fifth board, is for tests
_MAX_MISSES = 2_000  # maximum consecutive games without a new one


def make_rows(
    *,
    split: Split,
    count: int,
    seed: int,
    game: str | Sequence[str] = "mix",
    style: Style = "full",
    actions_per_turn: int = 1,
    **options: Any,
) -> list[EnvRow]:
    """Returns `count` different games; equal arguments give equal games.

    Args:
        split: the games of the two splits are disjoint, whatever the other arguments.
        count: how many rows.
        seed: which games.
        game: a name of `GAMES`, several of them in turn, or `mix` for all.
        style: `full` explains rules and symbols; `compact` shows only the position.
        actions_per_turn: maximum actions per turn.
        options: of `FrozenLakeOptions`, `SokobanOptions`, `QuestOptions` and `BanditOptions`; each applies to all
            chosen games that have it.

    Raises:
        ConfigError: an unknown game or option, a value out of range, or too few games.
    """
    if split not in ("train", "test"):
        raise ConfigError(f"split must be 'train' or 'test', got {split!r}")
    names = _read_names(game)
    chosen = {name: _read_options(name, options) for name in names}
    unknown = sorted(set(options) - {item.name for name in names for item in fields(GAMES[name].options)})
    if unknown:
        option_names = {name: [item.name for item in fields(GAMES[name].options)] for name in names}
        raise ConfigError(f"unknown options, got {unknown}; those of the chosen games are {option_names}")
    presentation = Presentation(style=style, actions_per_turn=actions_per_turn)
    rows = {
        name: _generate_rows(
            name, chosen[name], presentation, split=split, seed=seed, count=len(range(i, count, len(names)))
        )
        for i, name in enumerate(names)
    }
    return [next(rows[names[i % len(names)]]) for i in range(count)]


def to_row(name: str, number: int, game: Game[Any], presentation: Presentation) -> EnvRow:
    """Returns the row of a game.

    Args:
        name: the kind of game.
        number: the seed it was generated with.
        game: the game.
        presentation: style and actions per turn.
    """
    return EnvRow(
        prompt=(Message("user", prompt_of(game, presentation)),),
        ground_truth=game.spec,
        data_source="text_game",
        extra={
            "task_id": f"{name}-{number}",
            "game": name,
            "optimal_actions": len(game.solution(game.start())),
            "style": presentation.style,
            "actions_per_turn": presentation.actions_per_turn,
        },
    )


def prompt_of(game: Game[Any], presentation: Presentation) -> str:
    """Returns the prompt at the start of a game."""
    max_actions = presentation.actions_per_turn
    several = f"You may give up to {max_actions} actions in one turn, separated by {SEPARATOR}."
    parts = (
        game.rules(presentation.style),
        several if max_actions > 1 and presentation.style == "full" else "",
        game.view(game.start(), presentation.style),
    )
    return "\n".join(part for part in parts if part)


def _generate_rows(
    name: str, options: Any, presentation: Presentation, *, split: Split, seed: int, count: int
) -> Iterator[EnvRow]:
    rng = random.Random(f"{name}/{split}/{seed}")
    identities: set[str] = set()
    misses = 0
    while len(identities) < count:
        number = _TEST_PART * rng.randrange(2**28) + (0 if split == "test" else rng.randrange(1, _TEST_PART))
        game = GAMES[name].generate(number, options)
        if _split_of(game.identity) == split and game.identity not in identities:
            identities.add(game.identity)
            misses = 0
            yield to_row(name, number, game, presentation)
            continue
        misses += 1
        if misses == _MAX_MISSES:
            raise ConfigError(
                f"there are hardly more than {len(identities)} different games of {name} for {split!r} with {options}, "
                f"got count={count}; lower count, or choose options that have more games"
            )


def _split_of(identity: str) -> Split:
    return "test" if hashlib.sha256(identity.encode()).digest()[0] % _TEST_PART == 0 else "train"


def _read_names(game: str | Sequence[str]) -> list[str]:
    if game == "mix":
        return list(GAMES)
    names = [game] if isinstance(game, str) else list(dict.fromkeys(game))
    unknown = [name for name in names if name not in GAMES]
    if unknown or not names:
        raise ConfigError(f"unknown game, got {unknown or game!r}; use 'mix' or any of {sorted(GAMES)}")
    return names


def _read_options(name: str, options: Mapping[str, Any]) -> Any:
    kind = GAMES[name].options
    option_names = {item.name for item in fields(kind)}
    with boundary(ConfigError, f"reading the options of {name}"):
        return kind(**{key: value for key, value in options.items() if key in option_names})
