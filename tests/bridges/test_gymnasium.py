"""gymnasium: the list of problems, slips that the row decides, and ends that are no success."""

from __future__ import annotations

from typing import Any

import pytest

from verl_agentic.bridges.gymnasium import CARD, make_rows
from verl_agentic.bridges.gymnasium.env import ToyTextWorld


@pytest.fixture(scope="module", autouse=True)
def gymnasium() -> Any:
    return pytest.importorskip("gymnasium")


def test_every_toy_problem_is_a_task(gymnasium: Any) -> None:
    assert set(CARD.tasks) == {name for name, spec in gymnasium.registry.items() if "toy_text" in str(spec.entry_point)}


def test_the_row_decides_where_the_ice_slips() -> None:
    (row,) = make_rows(split="train", count=1, seed=0, task="FrozenLake8x8-v1")
    texts = []
    for _ in range(2):
        world = ToyTextWorld(**row.ground_truth)
        world.reset()
        texts.append([world.step("right").text for _ in range(6)])
    assert texts[0] == texts[1] and len(set(texts[0])) > 1
    straight = [f"You are in row 0, column {column}." for column in range(1, 7)]
    assert texts[0] != straight, "the ice is slippery"


@pytest.mark.parametrize(("task", "action"), [("FrozenLake-v1", "down"), ("Blackjack-v1", "hit")])
def test_a_hole_and_a_bust_end_the_episode_without_success(task: str, action: str) -> None:
    ends = []
    for row in make_rows(split="train", count=12, seed=0, task=task):
        world = ToyTextWorld(**row.ground_truth)
        world.reset()
        for _ in range(99):
            turn = world.step(action)
            if turn.is_over:
                ends.append(turn.is_won)
                break
    assert ends.count(False) >= 6


def test_a_taxi_ride_is_won_by_dropping_the_passenger_off() -> None:
    (row,) = make_rows(split="train", count=1, seed=0, task="Taxi-v4")
    world = ToyTextWorld(**row.ground_truth)
    assert "Passenger: at" in world.reset()
    actions = []
    while not (turn := world.step(actions[-1] if actions else world.expert() or "")).is_over:
        actions.append(world.expert() or "")
    assert turn.is_won and actions[-1] == "drop off" and actions.count("pick up") <= 1
