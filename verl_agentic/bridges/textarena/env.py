"""The environment `textarena`: a game, its rows and its solution."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from verl_agentic.bridges.task_rows import Split, draw_rows
from verl_agentic.bridges.text_world import TextWorldEnv, demonstrator_of, expert_policy, solved_row
from verl_agentic.env import EnvRow
from verl_agentic.env_card import read_tasks
from verl_agentic.types import Message

from .games import game_of
from .world import TextArenaWorld

_TASKS = read_tasks(str(Path(__file__)))
_TRIES = 20
"""Random games that look for a line that wins."""


def make_env(row: EnvRow) -> TextWorldEnv:
    """Returns the environment of one episode. Its outcome is 1 for a reward of 1 in TextArena, which is a win."""
    return TextWorldEnv(row, _world(row))


def gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
    """Returns the solution of a row; of games with luck or an opponent it knows the luck and the opponent's moves."""
    return expert_policy(partial(_world, row))


def make_rows(*, split: Split, count: int, seed: int, task: str | None = None, max_steps: int = 64) -> list[EnvRow]:
    """Returns `count` different games that can be won; no seed is in both splits.

    Args:
        split: `train` or `test`.
        count: number of rows.
        seed: of the games.
        task: one of `tasks.txt`; None: all of them in turn.
        max_steps: maximum actions of the solution.

    Raises:
        ConfigError: an unknown task, or hardly any game that is won in so many actions.
    """

    draw = partial(draw_game, max_steps=max_steps)
    return draw_rows(_TASKS, draw, task=task, split=split, count=count, seed=seed, is_hidden=True)


def draw_game(task: str, number: int, *, max_steps: int) -> EnvRow | None:
    """Returns the row of a game, or None if no solution of at most `max_steps` actions is found."""
    line: list[str] = []
    if game_of(task).solve is None:
        tried = (_random_line(task, number, attempt, max_steps=max_steps) for attempt in range(_TRIES))
        line = next((found for found in tried if found), [])
        if not line:
            return None
    world = TextArenaWorld(task, number, line)
    return solved_row(world, bridge="textarena", task=task, number=number, max_steps=max_steps, line=line)


def _random_line(task: str, number: int, attempt: int, *, max_steps: int) -> list[str]:
    """Returns the actions of a random game if it is won, else nothing. In every second one the policy plays soundly."""
    world, rng = TextArenaWorld(task, number), random.Random(f"{task}/{number}/{attempt}")
    world.reset()
    line: list[str] = []
    while len(line) < max_steps:
        line.append(world.sound_action(rng) if attempt % 2 else world.random_action(rng))
        turn = world.step(line[-1])
        if turn.is_over:
            return line if turn.is_won else []
    return []


def _world(row: EnvRow) -> TextArenaWorld:
    truth = row.ground_truth
    return TextArenaWorld(truth["task"], truth["seed"], truth.get("line") or ())


demonstrator = demonstrator_of(_world)
"""Against an opponent, a slip leaves the known line, so that all actions after it are random."""
