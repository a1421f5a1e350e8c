"""The recursions, on independent vectors and beside plain loops."""

from __future__ import annotations

import math

import pytest
import torch
from batches import any_rows, make_batch
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.credit.credit.gae import (
    following_rows,
    gae,
    next_values,
    returns_to_go,
    scan,
    sums_before,
    whitened,
)

NOTHING = torch.tensor([-1])
REWARDS, VALUES = torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([[0.5, 0.6, 0.8]])
ALL = torch.ones(1, 3, dtype=torch.bool)


def test_discounted_returns_vector() -> None:
    returns = returns_to_go(REWARDS, ALL, next_B=NOTHING, gamma=0.9)
    torch.testing.assert_close(returns, torch.tensor([[0.81, 0.9, 1.0]]))
    torch.testing.assert_close(returns - VALUES, torch.tensor([[0.31, 0.3, 0.2]]))


@pytest.mark.parametrize(
    ("gamma", "lam", "expected"),
    [(0.99, 0.95, [0.451484, 0.3801, 0.2]), (1.0, 1.0, [0.5, 0.4, 0.2]), (0.99, 0.0, [0.094, 0.192, 0.2])],
)
def test_gae_vector(gamma: float, lam: float, expected: list[float]) -> None:
    given = gae(REWARDS, VALUES, ALL, next_B=NOTHING, gamma=gamma, lam=lam)
    torch.testing.assert_close(given, torch.tensor([expected]), atol=5e-7, rtol=0)


@pytest.mark.parametrize("at_observation", [99.0, math.nan, math.inf])
def test_gae_vector_with_an_observation_that_nothing_may_read(at_observation: float) -> None:
    mask = torch.tensor([[1, 1, 0, 1, 1]]).bool()
    rewards = torch.tensor([[0.0, 0.0, at_observation, 0.0, 1.0]])
    values = torch.tensor([[0.2, 0.3, at_observation, 0.5, 0.9]])
    given = gae(rewards, values, mask, next_B=NOTHING, gamma=1.0, lam=0.9)
    torch.testing.assert_close(given, torch.tensor([[0.6769, 0.641, 0.0, 0.49, 0.1]]))
    expected = torch.tensor([[0.757172, 0.621209, 0.0, 0.049329, -1.42771]])
    torch.testing.assert_close(whitened(given, mask), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("mask", "expected"), [([1, 1, 1, 0, 0, 0], 0.0), ([1, 1, 1, 0, 1, 1], 1.0)])
def test_a_reward_after_the_last_sampled_token_is_lost(mask: list[int], expected: float) -> None:
    """`gae` ignores such a reward, so `CreditBatch` and the agent loop never leave one there."""
    rewards, mask_BT = torch.tensor([[0.0, 0, 0, 0, 0, 1]]), torch.tensor([mask]).bool()
    given = gae(rewards, torch.zeros(1, 6), mask_BT, next_B=NOTHING, gamma=1.0, lam=1.0)
    assert given[mask_BT].tolist() == [expected] * sum(mask)


def plain_gae(
    rewards: list[float], values: list[float], exists: list[bool], *, gamma: float, lam: float, carry: float = 0.0
) -> list[float]:
    later_value, later, advantages = 0.0, carry, [0.0] * len(rewards)
    for t in reversed(range(len(rewards))):
        if exists[t]:
            later = rewards[t] + gamma * later_value - values[t] + gamma * lam * later
            later_value, advantages[t] = values[t], later
    return advantages


@given(rows=any_rows(needs=["values_BT"], several_rows=False, dense=True), gamma=st.sampled_from([0.5, 0.9, 1.0]),
       lam=st.sampled_from([0.0, 0.7, 1.0]))  # fmt: skip
def test_gae_is_the_recursion_written_as_a_loop(rows, gamma: float, lam: float) -> None:
    mask, values = rows.mask.bool(), rows.columns["values_BT"]
    given_BT = gae(rows.rewards, values, mask, next_B=torch.full((len(mask),), -1), gamma=gamma, lam=lam)
    expected = [
        plain_gae(r, v, m, gamma=gamma, lam=lam)
        for r, v, m in zip(rows.rewards.tolist(), values.tolist(), mask.tolist(), strict=True)
    ]
    torch.testing.assert_close(given_BT, torch.tensor(expected), atol=1e-5, rtol=1e-5)


def test_returns_less_values_are_the_limit_of_gae() -> None:
    generator = torch.Generator().manual_seed(0)
    rewards, values = torch.randn(4, 9, generator=generator), torch.randn(4, 9, generator=generator)
    exists, nothing = torch.rand(4, 9, generator=generator) < 0.7, torch.full((4,), -1)
    exact = gae(rewards, values, exists, next_B=nothing, gamma=1.0, lam=1.0)
    scanned = gae(rewards, values, exists, next_B=nothing, gamma=1.0, lam=torch.ones(4, 1))
    torch.testing.assert_close(exact, scanned, atol=1e-5, rtol=1e-5)


def test_a_chain_of_rows_is_one_long_row() -> None:
    generator = torch.Generator().manual_seed(0)
    deltas, decays = torch.randn(1, 12, generator=generator), torch.rand(1, 12, generator=generator)
    values, exists = torch.randn(1, 12, generator=generator), torch.rand(1, 12, generator=generator) < 0.6
    exists[0, [3, 7, 9]] = True
    # Three rows of four places; they lie in the order 2, 0, 1.
    cut = torch.tensor([2, 0, 1])
    next_B = torch.tensor([-1, 2, 0])

    def rows(long: torch.Tensor) -> torch.Tensor:
        return long.reshape(3, 4)[cut]

    whole = scan(deltas, decays, next_B=NOTHING)
    torch.testing.assert_close(scan(rows(deltas), rows(decays), next_B=next_B), rows(whole))
    whole = next_values(values, exists, next_B=NOTHING)
    torch.testing.assert_close(next_values(rows(values), rows(exists), next_B=next_B), rows(whole))
    for gamma in (0.9, 1.0):
        whole = returns_to_go(deltas, exists, next_B=NOTHING, gamma=gamma)
        torch.testing.assert_close(returns_to_go(rows(deltas), rows(exists), next_B=next_B, gamma=gamma), rows(whole))
    # Rows 1, 2, 0 follow each other.
    assert sums_before(torch.tensor([5, 3, 4]), next_B).tolist() == [7, 0, 3]


def test_the_rows_of_a_session_follow_by_turn_and_the_last_comes_last() -> None:
    # Session a: rows 3 (turn 0), 0 (turn 2), 4 (turn 5, the last); row 2 is void. Session b: row 1.
    ids = torch.tensor([[2, 2], [0, 0], [3, 3], [0, 1], [5, 5]])
    sessions, order = ["a", "b", "a", "a", "a"], [1, 0, 2, 0, 3]
    batch = make_batch([0.0] * 5, sessions=sessions, order=order, tokens=2, void=[2], turn_ids_BT=ids)
    assert following_rows(batch).tolist() == [4, -1, -1, 0, -1]
    unordered = make_batch([0.0] * 3, sessions=["a", "a", "a"], order=[2, 0, 1], tokens=2)
    assert following_rows(unordered).tolist() == [-1, 2, 0]


def test_a_session_that_was_taken_out_has_no_chain() -> None:
    batch = make_batch([math.nan, 1.0, 1.0], groups=[0, 0, 0], sessions=["a", "a", "b"], order=[0, 1, 0])
    assert following_rows(batch).tolist() == [-1, -1, -1]


def test_whitening_leaves_mean_0_and_variance_1_and_one_token_as_it_is() -> None:
    mask = torch.tensor([[True, True, False], [True, False, False]])
    white = whitened(torch.tensor([[1.0, 2.0, math.nan], [6.0, 1e30, math.inf]]), mask)
    # Mean 3, deviations -2, -1, 3, unbiased variance 7.
    expected = torch.tensor([[-2.0, -1.0, 0.0], [3.0, 0.0, 0.0]]) / math.sqrt(7)
    torch.testing.assert_close(white, expected)
    alone = torch.tensor([[False, True]])
    assert whitened(torch.tensor([[5.0, 2.0]]), alone).tolist() == [[0.0, 2.0]]
    assert whitened(torch.tensor([[5.0, 2.0]]), torch.zeros_like(alone)).tolist() == [[0.0, 0.0]]


def test_bfloat16_values_are_computed_in_float32() -> None:
    given = gae(REWARDS, VALUES.bfloat16(), ALL, next_B=NOTHING, gamma=0.99, lam=0.95)
    assert given.dtype == torch.float32
    exact = gae(REWARDS, VALUES.bfloat16().float(), ALL, next_B=NOTHING, gamma=0.99, lam=0.95)
    assert torch.equal(given, exact)


def test_void_rows_are_no_part_of_a_batch() -> None:
    batch: CreditBatch = make_batch([1.0, 1.0], void=[1])
    assert following_rows(batch).tolist() == [-1, -1]
