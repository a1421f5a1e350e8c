"""Turns against the same turn of siblings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from statistics import fmean

import pytest
import torch
from turn_batches import per_turn, turn_batch

from verl_agentic.methods.advantages.turn_group import turn_group

Rewards = Sequence[Sequence[float]]


def ours(sessions: Rewards, **options: object) -> list[list[float]]:
    batch = turn_batch(sessions)
    return per_turn(turn_group(batch, **options).advantages_BT, batch)


def check(values: Sequence[Sequence[float]], expected: Sequence[Sequence[float]]) -> None:
    for row, want in zip(values, expected, strict=True):
        assert row == pytest.approx(want, abs=2e-6)


def pooled(sessions: Rewards) -> list[list[float]]:
    """Returns a near alternative: returns-to-go less their mean over all turns of the group."""
    to_go = [[sum(row[k:]) for k in range(len(row))] for row in sessions]
    mean = fmean(value for row in to_go for value in row)
    return [[value - mean for value in row] for row in to_go]


def summed(sessions: Rewards) -> list[list[float]]:
    """MT-GRPO's way: rewards less the mean of their turn, summed over the turns that the session has."""
    means = [fmean(row[k] for row in sessions if k < len(row)) for k in range(max(map(len, sessions)))]
    return [[sum(row[j] - means[j] for j in range(k, len(row))) for k in range(len(row))] for row in sessions]


def test_a_turn_is_compared_with_the_same_turn_of_the_others() -> None:
    # G: [3, 2], [1], [0, 4] -> turn 0 against the mean of the others (.5, 1.5, 2); turn 1 against the other's one.
    check(ours([[1, 2], [1], [-4, 4]]), [[2.5, -2.0], [-0.5], [-2.0, 2.0]])


def test_the_mean_may_hold_the_session_itself() -> None:
    check(ours([[1, 2], [1], [-4, 4]], norm="mean"), [[5 / 3, -1.0], [-1 / 3], [-4 / 3, 1.0]])


def test_the_standard_deviation_is_that_of_the_turn() -> None:
    # Turn 0: G 3, 1, 0 have the variance 7/3; turn 1: 2 and 4 have 2.
    first, second = (7 / 3) ** 0.5, 2**0.5
    expected = [[5 / 3 / first, -1 / second], [-1 / 3 / first], [-4 / 3 / first, 1 / second]]
    check(ours([[1, 2], [1], [-4, 4]], norm="mean_std"), expected)


def test_later_rewards_are_discounted() -> None:
    # G: [0 + .5 * 8, 8], [2, 0]
    assert ours([[0, 8], [2, 0]], gamma=0.5) == [[2.0, 8.0], [-2.0, -8.0]]


def test_a_turn_that_no_sibling_has_goes_on_with_the_last_one_that_had() -> None:
    # Turn 0: 5 against 2. No sibling has turn 1 or 2.
    assert ours([[1, 1, 3], [2]]) == [[3.0, 3.0, 3.0], [-3.0]]


def test_a_session_alone_has_nothing_to_be_compared_with() -> None:
    batch = turn_batch([[1, 2], [3], [5]], groups=["a", "b", "b"])
    assert per_turn(turn_group(batch).advantages_BT, batch) == [[0.0, 0.0], [-2.0], [2.0]]


def test_turns_of_a_sibling_that_earn_nothing_move_nobody_else() -> None:
    # The third session does the same and earns the same; it takes two turns more over it.
    short, long = [[1.0], [0.0], [1.0]], [[1.0], [0.0], [0.0, 0.0, 1.0]]
    check(ours(short), [[0.5], [-1.0], [0.5]])
    check(ours(long), [[0.5], [-1.0], [0.5, 0.5, 0.5]])
    # Three votes instead of one: the mean goes from 2/3 to 4/5, and the failure is punished harder.
    assert pooled(short)[1] == pytest.approx([-2 / 3])
    assert pooled(long)[1] == pytest.approx([-4 / 5])


def expected_gradient(
    estimator: Callable[[Rewards], list[list[float]]], *, rewards: Rewards, p_stop: float, size: int
) -> float:
    """Returns what an estimator expects of d(earned) / d(logit of stopping), by going through all groups of a size.

    The policy decides at turn 0 whether that is its last turn; it has `rewards[0]` when it stops and `rewards[1]` when
    it goes on. Its later turns have nothing to decide.
    """
    total = 0.0
    for stops in product((True, False), repeat=size):
        advantages = estimator([rewards[0] if stop else rewards[1] for stop in stops])
        probability = 1.0
        for stop in stops:
            probability *= p_stop if stop else 1 - p_stop
        # d log pi / d logit of the choice at turn 0.
        scores = [(1 - p_stop) if stop else -p_stop for stop in stops]
        total += probability * fmean(a[0] * s for a, s in zip(advantages, scores, strict=True))
    return total


@pytest.mark.parametrize("rewards", [[[1.0], [0.5, 0.5]], [[0.25], [0.5, 0.5]], [[0.75], [0.5, 0.0, 0.5]]])
def test_the_gradient_of_stopping_has_no_bias(rewards: Rewards) -> None:
    p = 0.4
    true = p * (1 - p) * (sum(rewards[0]) - sum(rewards[1]))
    options = {"rewards": rewards, "p_stop": p, "size": 3}
    assert expected_gradient(ours, **options) == pytest.approx(true, abs=1e-7)
    # The mean of the group itself only scales it by 1 - 1/3.
    scaled = expected_gradient(lambda group: ours(group, norm="mean"), **options)
    assert scaled == pytest.approx(true * 2 / 3, abs=1e-7)


def test_sums_of_turn_means_pay_for_stopping() -> None:
    # Stopping and going on earn the same, but the .5 of turn 1 is taken off those that have one:
    # p (1 - p) (.5 - .5 / 3) = .08, the last term because the mean of turn 0 holds the session itself.
    options = {"rewards": [[1.0], [0.5, 0.5]], "p_stop": 0.4, "size": 3}
    assert expected_gradient(summed, **options) == pytest.approx(0.08, abs=1e-7)
    assert expected_gradient(ours, **options) == pytest.approx(0.0, abs=1e-7)


def test_rows_of_a_session_are_its_turns_one_after_the_other() -> None:
    whole = turn_batch([[1, 2, 4], [0, 1, 1]])
    split = turn_batch([[1, 2], [4], [0, 1, 1]], sessions=["a", "a", "b"], first_turns=[0, 2, 0])
    (a0, a1, a2), b = per_turn(turn_group(whole).advantages_BT, whole)
    assert per_turn(turn_group(split).advantages_BT, split) == [[a0, a1], [a2], b]
    assert [a0, a1, a2] == [5.0, 4.0, 3.0]


def test_rows_of_sub_agents_have_no_vote_and_get_what_the_first_turn_gets() -> None:
    states = [["s", "t"], [], ["s", "u"]]
    is_side = torch.tensor([False, True, False])
    batch = turn_batch([[2, 1], [], [0, 4]], states=states, sessions=["a", "a", "b"], is_side_B=is_side)
    batch.mask_BT[1, :3] = True  # a turn 0 of its own, and a turn 1
    assert batch.turn_ids_BT is not None
    batch.turn_ids_BT[1, :3] = torch.tensor([0, 1, 2])
    batch.valid_B[1] = True
    advantages = turn_group(batch).advantages_BT
    assert advantages[1].tolist() == [-1.0, -1.0, -1.0, 0.0, 0.0, 0.0]
    assert advantages[0, 0] == -1.0 and advantages[0, 3] == -3.0
