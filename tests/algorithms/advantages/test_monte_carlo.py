from __future__ import annotations

import pytest
import torch
from batches import make_batch

from verl_agentic.credit.advantages.monte_carlo import monte_carlo
from verl_agentic.credit.credit.discounting import sparse_value


def test_vector_without_and_with_a_critic() -> None:
    expected = torch.tensor([[0.81, 0.9, 1.0]])
    given = monte_carlo(make_batch([1.0]), gamma=0.9)
    torch.testing.assert_close(given.advantages_BT, expected)
    torch.testing.assert_close(given.returns_BT, expected)
    assert given.metrics == {}
    given = monte_carlo(make_batch([1.0], values_BT=torch.tensor([[0.5, 0.6, 0.8]])), gamma=0.9)
    torch.testing.assert_close(given.advantages_BT, torch.tensor([[0.31, 0.3, 0.2]]))
    torch.testing.assert_close(given.returns_BT, expected)


def test_observations_take_no_time() -> None:
    given = monte_carlo(make_batch([1.0], mask=torch.tensor([[1, 0, 0, 1, 1]])), gamma=0.5)
    assert given.advantages_BT.tolist() == [[0.25, 0.0, 0.0, 0.5, 1.0]]


def test_a_sparse_outcome_leaves_a_critic_little_but_the_clock() -> None:
    """Vector: 50 steps before the reward, 3 of 10 succeed, gamma 0.99: what a critic is trained towards on average."""
    given = monte_carlo(make_batch([1.0] * 3 + [0.0] * 7, tokens=51), gamma=0.99)
    targets = given.returns_BT.mean(dim=0)[[0, 25, 49]]
    torch.testing.assert_close(targets, torch.tensor([0.181502, 0.233346, 0.297]), atol=1e-6, rtol=0)
    assert targets.tolist() == pytest.approx(
        [sparse_value(0.3, gamma=0.99, steps_left=50 - t) for t in (0, 25, 49)], abs=1e-6
    )


def test_explained_variance_is_over_sampled_tokens() -> None:
    # Vector: returns 1, 0, 0, 1, values 0.8, 0.1, 0.3, 0.6.
    values = torch.tensor([[0.8, 99.0], [0.1, 99.0], [0.3, 99.0], [0.6, 99.0]])
    batch = make_batch([1.0, 0.0, 0.0, 1.0], mask=torch.tensor([[1, 0]] * 4), values_BT=values)
    assert monte_carlo(batch).metrics == {"credit/explained_variance": pytest.approx(0.71, abs=1e-6)}
