from __future__ import annotations

import math

import pytest
import torch
from batches import make_batch

from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.methods.advantages.bilevel_gae import bilevel_gae

MASK = torch.tensor([[1, 1, 1, 0, 1, 1]])
IDS = torch.tensor([[0, 0, 0, 0, 1, 1]])
VALUES = torch.tensor([[0.1, 0.2, 0.3, math.nan, 0.5, 0.6]])


def two_turns(rewards: list[float]) -> CreditBatch:
    return CreditBatch.of(rewards=torch.tensor([rewards]), mask=MASK, groups=[0], turn_ids_BT=IDS, values_BT=VALUES)


def test_vector() -> None:
    given = bilevel_gae(two_turns([0, 0, 0.1, 0, 0, 1.0]), whiten=False)
    torch.testing.assert_close(given.advantages_BT, torch.tensor([[0.95, 0.85, 0.75, 0.0, 0.5, 0.4]]))
    # With gamma and lambda 1 inside turns, the critic learns the turns' returns: 1.05 and 1.
    torch.testing.assert_close(given.returns_BT, torch.tensor([[1.05, 1.05, 1.05, 0.0, 1.0, 1.0]]))


def test_a_turn_that_earned_nothing_is_a_turn() -> None:
    given = bilevel_gae(two_turns([0, 0, 0, 0, 0, 1.0]), whiten=False)
    # R[1] = 1; R[0] = 0 + 0.95 * 0.6 + 0.95 * (1 - 0.6) = 0.95.
    torch.testing.assert_close(given.advantages_BT, torch.tensor([[0.85, 0.75, 0.65, 0.0, 0.5, 0.4]]))


def test_a_reward_inside_a_turn_counts_for_the_turn_once() -> None:
    inside, at_end = two_turns([0.1, 0, 0, 0, 0, 1.0]), two_turns([0, 0, 0.1, 0, 0, 1.0])
    assert torch.equal(bilevel_gae(inside).advantages_BT, bilevel_gae(at_end).advantages_BT)


@pytest.mark.parametrize(("gamma", "lam"), [(0.9, 0.8), (1.0, 0.5), (0.9, 1.0)])
def test_tokens_of_a_turn_look_no_further_than_its_end(gamma: float, lam: float) -> None:
    given = bilevel_gae(two_turns([0, 0, 0.1, 0, 0, 1.0]), gamma=gamma, lam=lam, whiten=False)
    turn_1 = 1.0 - 0.6
    return_0 = 0.1 + 0.95 * 0.6 + 0.95 * lam * turn_1
    expected = [0.0] * 6
    expected[5] = turn_1
    expected[4] = gamma * 0.6 - 0.5 + gamma * lam * expected[5]
    expected[2] = return_0 - 0.3
    expected[1] = gamma * 0.3 - 0.2 + gamma * lam * expected[2]
    expected[0] = gamma * 0.2 - 0.1 + gamma * lam * expected[1]
    torch.testing.assert_close(given.advantages_BT, torch.tensor([expected]))


def test_the_closed_form_is_the_recursion() -> None:
    batch = two_turns([0, 0, 0.1, 0, 0, 1.0])
    torch.testing.assert_close(
        bilevel_gae(batch, gamma=1.0, whiten=False).advantages_BT,
        bilevel_gae(batch, gamma=1.0 - 1e-9, whiten=False).advantages_BT,
    )


def test_without_sampled_tokens_there_is_nothing() -> None:
    batch = make_batch([1.0], void=[0], turn_ids_BT=torch.zeros(1, 3, dtype=torch.int64), values_BT=torch.ones(1, 3))
    given = bilevel_gae(batch)
    assert given.advantages_BT.tolist() == [[0.0] * 3]
    assert given.metrics == {}
