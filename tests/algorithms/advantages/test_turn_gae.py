from __future__ import annotations

import math

import pytest
import torch
from batches import make_batch

from verl_agentic.credit.advantages.step_critic import step_critic
from verl_agentic.credit.advantages.turn_gae import turn_gae

# Three turns of 2, 1 and 2 sampled tokens, with observations between them; V stands at their first tokens.
MASK = torch.tensor([[1, 1, 0, 1, 0, 0, 1, 1]])
IDS = torch.tensor([[0, 0, 0, 1, 1, 1, 2, 2]])
OTHER = 7.0
VALUES = torch.tensor([[0.5, OTHER, math.nan, 0.6, math.nan, math.inf, 0.8, OTHER]])


def three_turns(**known):
    return make_batch([1.0], mask=MASK, **{"turn_ids_BT": IDS, "values_BT": VALUES, **known})


@pytest.mark.parametrize(
    ("gamma", "lam", "expected"),
    [(0.99, 0.95, [0.451484, 0.3801, 0.2]), (1.0, 1.0, [0.5, 0.4, 0.2]), (0.99, 0.0, [0.094, 0.192, 0.2])],
)
def test_vector_on_every_sampled_token_of_its_turn_and_nowhere_else(
    gamma: float, lam: float, expected: list[float]
) -> None:
    given = turn_gae(three_turns(), gamma=gamma, lam=lam, whiten=False)
    a, b, c = expected
    torch.testing.assert_close(given.advantages_BT, torch.tensor([[a, a, 0, b, 0, 0, c, c]]), atol=5e-7, rtol=0)


def test_the_defaults_are_the_vectors() -> None:
    assert torch.equal(
        turn_gae(three_turns()).advantages_BT, turn_gae(three_turns(), gamma=0.99, lam=0.95, whiten=True).advantages_BT
    )


def test_the_critic_learns_the_turns_return_on_all_of_its_tokens() -> None:
    given = turn_gae(three_turns(), gamma=0.99, lam=0.95)
    a, b, c = 0.951484, 0.9801, 1.0
    torch.testing.assert_close(given.returns_BT, torch.tensor([[a, a, 0, b, 0, 0, c, c]]), atol=5e-7, rtol=0)


def test_a_step_critic_learns_only_where_steps_end() -> None:
    given = step_critic(three_turns())
    expected = torch.tensor([[0.951484, OTHER, 0, 0.9801, 0, 0, 1.0, OTHER]])
    torch.testing.assert_close(given.returns_BT, expected, atol=5e-7, rtol=0)
    assert torch.equal(given.advantages_BT, turn_gae(three_turns()).advantages_BT)


def test_a_step_critic_is_measured_where_steps_end() -> None:
    # Vector: returns 1, 0, 0, 1, values 0.8, 0.1, 0.3, 0.6 at the only step of four rows.
    values = torch.tensor([[0.8, 55.0], [0.1, -3.0], [0.3, 12.0], [0.6, 99.0]])
    batch = make_batch([1.0, 0, 0, 1], tokens=2, values_BT=values, turn_ids_BT=torch.zeros(4, 2, dtype=torch.int64))
    for estimator in (step_critic, turn_gae):
        metrics = estimator(batch, gamma=1.0).metrics
        assert metrics == {"credit/explained_variance": pytest.approx(0.71, abs=1e-6)}


def test_long_turns_and_observations_discount_nothing() -> None:
    values = torch.zeros(2, 8)
    mask = torch.tensor([[1, 0, 1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 1, 1, 1]])
    ids = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1, 1, 1]])
    batch = make_batch([1.0, 1.0], mask=mask, turn_ids_BT=ids, values_BT=values)
    given = turn_gae(batch, gamma=0.5, lam=1.0, whiten=False).advantages_BT
    assert given.tolist() == [[0.5, 0, 1, 0, 0, 0, 0, 0], [0.5, 0.5, 0, 0, 0, 1, 1, 1]]
