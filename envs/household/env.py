"""The environment `household`: a house or a game file, its solution and its demonstrations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from verl_agentic import DataError, EnvRow, Message
from verl_agentic.bridges.text_world import ExpertWorld, TextWorldEnv, demonstrator_of, expert_policy

from .game_files import GameFileWorld
from .world import HouseholdWorld, Presentation


def make_env(row: EnvRow) -> TextWorldEnv:
    """Returns the environment of one episode.

    Raises:
        DataError: the row has neither a house nor a game file.
    """
    return TextWorldEnv(row, make_world(row))


def gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
    """Returns the planner's policy, which knows where everything is, or the solution of a game file."""
    return expert_policy(partial(make_world, row))


def make_world(row: EnvRow) -> ExpertWorld:
    """Returns the world of a row."""
    truth = row.ground_truth
    if isinstance(truth, Mapping) and "game_file" in truth:
        return GameFileWorld(Path(truth["game_file"]), max_steps=truth["max_steps"])
    if isinstance(truth, Mapping) and "house" in truth:
        return HouseholdWorld(truth["house"], Presentation(**truth.get("shown") or {}))
    raise DataError(f"the ground truth has neither a house nor a game_file, got {truth!r}; make the rows anew")


demonstrator = demonstrator_of(make_world)
