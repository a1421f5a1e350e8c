"""gem: the list of games, and lost games that give rewards."""

from __future__ import annotations

import random

import pytest

from verl_agentic.bridges.gem import CARD, make_rows
from verl_agentic.bridges.gem.env import GemWorld

registration = pytest.importorskip("gem.envs.registration")


def test_every_task_is_a_game_of_gem() -> None:
    assert {f"game:{task}" for task in CARD.tasks} <= set(registration.ENV_REGISTRY)


def test_a_guess_needs_no_box_and_running_out_of_turns_is_no_success() -> None:
    world = GemWorld("GuessTheNumber-v0-hard", 1)
    world.reset()
    secret = world._game.game_number
    for guess in [number for number in range(1, 51) if number != secret]:
        turn = world.step(str(guess))
        if turn.is_over:
            break
    assert turn.is_over and not turn.is_won
    assert GemWorld("GuessTheNumber-v0-hard", 1).reset() == GemWorld("GuessTheNumber-v0-hard", 1).reset()


def test_making_games_leaves_the_global_generator_as_it_was() -> None:
    state = random.getstate()
    rows = make_rows(split="train", count=6, seed=0)
    assert [row.extra["task"] for row in rows] == list(CARD.tasks[:6]) and random.getstate() == state
