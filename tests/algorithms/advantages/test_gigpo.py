"""Sessions against siblings, steps against those from the same state."""

from __future__ import annotations

from typing import Literal

import pytest
from turn_batches import per_turn, turn_batch

from verl_agentic.credit.advantages.gigpo import gigpo
from verl_agentic.credit.credit.batch import CreditBatch

STATES = [["s0", "sA", "sB"], ["s0", "sA", "sC"], ["s0", "sB"], ["s0", "sC"]]
REWARDS = [[0, 0, 1.0], [0, 0, 0], [0, 1.0], [0, 0]]
MEAN = [[0.939375, 0.975, 0.5], [-0.963125, -0.975, -0.5], [0.986875, 0.5], [-0.963125, -0.5]]
MEAN_STD = [
    [1.687097, 1.57313, 0.866024],
    [-1.731479, -1.57313, -0.866024],
    [1.775861, 0.866024],
    [-1.731479, -0.866024],
]
STEP_MEAN = [[0.439375, 0.475, 0.0], [-0.463125, -0.475, 0.0], [0.486875, 0.0], [-0.463125, 0.0]]


def check(batch: CreditBatch, expected: list[list[float]], **options: object) -> None:
    for row, want in zip(per_turn(gigpo(batch, **options).advantages_BT, batch), expected, strict=True):
        assert row == pytest.approx(want, abs=2e-6)


@pytest.mark.parametrize(("norm", "expected"), [("mean", MEAN), ("mean_std", MEAN_STD)])
def test_the_table_of_anchor_states(norm: Literal["mean", "mean_std"], expected: list[list[float]]) -> None:
    check(turn_batch(REWARDS, states=STATES), expected, norm=norm)


def test_omega_weighs_the_steps() -> None:
    batch = turn_batch(REWARDS, states=STATES)
    session = [0.5, -0.5, 0.5, -0.5]
    check(batch, [[a] * len(row) for a, row in zip(session, STEP_MEAN, strict=True)], omega=0.0)
    twice = [[a + 2 * step for step in row] for a, row in zip(session, STEP_MEAN, strict=True)]
    check(batch, twice, omega=2.0)


def test_a_state_that_one_step_started_from_says_nothing() -> None:
    batch = turn_batch([[0, 1.0], [0, 0]], states=[["s", "only here"], ["s", "only there"]])
    check(batch, [[0.5 + 0.475, 0.5], [-0.5 - 0.475, -0.5]])


def test_every_visit_of_a_state_counts() -> None:
    # G .9025, .95, 1 of the first, 0 of the second; of s: .9025, 1 and 0, with the mean .634167.
    batch = turn_batch([[0, 0, 1.0], [0.0]], states=[["s", "t", "s"], ["s"]])
    check(batch, [[0.5 + 0.268333, 0.5, 0.5 + 0.365833], [-0.5 - 0.634167]])


def test_groups_share_no_states() -> None:
    batch = turn_batch([[1.0], [0], [0.0], [4.0]], states=[["s"]] * 4, groups=["g", "g", "h", "h"])
    check(batch, [[1.0], [-1.0], [-4.0], [4.0]])


def test_rows_of_a_session_count_as_one() -> None:
    split = turn_batch(
        [[0, 0], [1.0], *REWARDS[1:]],
        states=[["s0", "sA"], ["sB"], *STATES[1:]],
        sessions=["T1", "T1", "T2", "T3", "T4"],
        first_turns=[0, 2, 0, 0, 0],
    )
    check(split, [MEAN[0][:2], MEAN[0][2:], *MEAN[1:]])


def test_a_turn_without_a_step_gets_what_the_session_has() -> None:
    batch = turn_batch(REWARDS, states=STATES)
    assert batch.steps is not None
    batch.steps.state_BK[0, 1] = -1
    # sA is left to the second session alone.
    check(batch, [[0.939375, 0.5, 0.5], [-0.963125, -0.5, -0.5], *MEAN[2:]])
