"""The environment `textarena`: a game, its rows and its solution."""

from __future__ import annotations

import random
from pathlib import Path

from verl_agentic.base.env import EnvRow
from verl_agentic.base.env_card import read_tasks
from verl_agentic.bridges.text_world import solved_row
from verl_agentic.bridges.text_world_package import TextWorldPackage

from .games import game_of
from .world import TextArenaWorld

_TASKS = read_tasks(str(Path(__file__)))
_TRIES = 20
"""Random games that look for a line that wins."""


def draw_game(task: str, number: int, *, max_steps: int) -> EnvRow | None:
    """Returns the row of a game, or None if no solution of at most `max_steps` actions is found."""
    line: list[str] = []
    if game_of(task).solve is None:
        tried = (_random_line(task, number, attempt, max_steps=max_steps) for attempt in range(_TRIES))
        line = next((candidate for candidate in tried if candidate), [])
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


_PACKAGE = TextWorldPackage("textarena", tasks=_TASKS, make_world=TextArenaWorld, draw=draw_game, is_hidden=True)
make_env, make_rows, gold, demonstrator = _PACKAGE.make_env, _PACKAGE.make_rows, _PACKAGE.gold, _PACKAGE.demonstrator
