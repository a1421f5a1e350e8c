"""minigrid: the list of levels, the view in words, and experts."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from verl_agentic.bridges.minigrid import CARD, demonstrator, make_rows
from verl_agentic.bridges.minigrid.env import MiniGridWorld
from verl_agentic.bridges.minigrid.refused import REFUSED
from verl_agentic.bridges.minigrid.view import describe
from verl_agentic.cpu.quickstart.course import load_course

pytestmark = pytest.mark.filterwarnings("ignore:.*out of date:DeprecationWarning")
EMPTY, WALL, RED_BALL, DOOR = (1, 0, 0), (2, 5, 0), (6, 0, 0), (4, 2, 2)


@pytest.fixture(scope="module", autouse=True)
def gymnasium() -> Any:
    pytest.importorskip("minigrid")
    return pytest.importorskip("gymnasium")


def test_every_level_is_a_task_or_refused_with_a_reason(gymnasium: Any) -> None:
    levels = {name for name in gymnasium.registry if name.startswith(("BabyAI-", "MiniGrid-"))}
    refused = {name for name in levels if any(re.fullmatch(pattern, name) for pattern in REFUSED)}
    assert set(CARD.tasks) | refused == levels and not set(CARD.tasks) & refused


def test_the_view_names_things_by_steps_ahead_and_to_the_side() -> None:
    image = [[EMPTY] * 7 for _ in range(7)]
    image[3][4] = RED_BALL  # two ahead
    image[1][6] = DOOR  # two left
    image[3][1] = image[4][6] = WALL
    assert describe(image, None) == (
        "You see: locked blue door 2 left, red ball 2 ahead. Walls: 5 ahead, 1 right. You carry: nothing."
    )


def test_an_expert_of_the_goal_takes_the_key_and_opens_the_door() -> None:
    world = MiniGridWorld("MiniGrid-DoorKey-5x5-v0", 3, with_expert=True)
    world.reset()
    played = []
    while True:
        action = world.expert()
        assert action is not None
        played.append(action)
        turn = world.step(action)
        if turn.is_over:
            break
    assert turn.is_won and played.count("pick up") == played.count("toggle") == 1


@pytest.mark.slow
def test_the_bot_goes_on_after_slips() -> None:
    (row,) = make_rows(split="train", count=1, seed=0, task="BabyAI-GoToLocal-v0")
    won = 0
    for seed in range(10):
        next_message = demonstrator(row, rng=random.Random(seed), skilled=1.0, slip=0.2)
        world, messages = MiniGridWorld(**row.ground_truth), []
        world.reset()
        for _ in range(60):
            messages.append(next_message(messages))
            turn = world.step(messages[-1].tool_calls[0].arguments["action"])
            if turn.is_over:
                won += turn.is_won
                break
    assert won >= 8


def test_a_level_that_needs_more_steps_gives_no_row() -> None:
    rows = make_rows(split="train", count=5, seed=0, task="BabyAI-GoToLocal-v0", max_steps=4)
    assert all(row.extra["expert_actions"] <= 4 for row in rows)


def test_the_levels_of_the_recipe_fit_its_turns() -> None:
    course = load_course("babyai")
    assert course.package.make_rows is not None
    rows = course.package.make_rows(split="train", count=8, seed=0, **course.options)
    assert all(row.extra["expert_actions"] < course.limits.max_turns for row in rows)
