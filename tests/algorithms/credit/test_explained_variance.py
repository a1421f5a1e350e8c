from __future__ import annotations

import math

import pytest
import torch
from batches import make_batch

from verl_agentic.credit.credit.explained_variance import critic_metrics, explained_variance, token_critic_metrics

NOTHING = torch.tensor([-1, -1])


def test_vector_and_places_that_do_not_exist() -> None:
    returns, values = torch.tensor([1.0, 0, 0, 1, math.nan]), torch.tensor([0.8, 0.1, 0.3, 0.6, 99])
    exists = torch.tensor([True, True, True, True, False])
    assert explained_variance(values, returns, exists) == pytest.approx(0.71, abs=1e-6)


@pytest.mark.parametrize(("values", "expected"), [([1.0, 0, 1], 1.0), ([7.0, 7, 7], 0.0), ([0.0, 1, 0], -3.0)])
def test_a_critic_that_knows_all_nothing_or_the_opposite(values: list[float], expected: float) -> None:
    exists = torch.ones(3, dtype=torch.bool)
    assert explained_variance(torch.tensor(values), torch.tensor([1.0, 0, 1]), exists) == pytest.approx(expected)


@pytest.mark.parametrize("count", [0, 1, 3, 5000])
def test_it_is_not_defined_where_returns_do_not_vary(count: int) -> None:
    exists = torch.arange(5000) < count
    assert math.isnan(explained_variance(torch.rand(5000), torch.full((5000,), 0.1), exists))


def test_what_is_not_defined_is_no_metric() -> None:
    batch = make_batch([0.0, 0.0], values_BT=torch.rand(2, 3))
    assert token_critic_metrics(batch, torch.zeros(2, 3)) == {}
    exists = torch.ones(2, 3, dtype=torch.bool)
    assert critic_metrics(batch, torch.rand(2, 3), batch.rewards_BT, exists, next_B=NOTHING, gamma=0.9) == {}


def test_a_critic_that_knows_only_the_clock_explains_no_more_than_the_clock() -> None:
    batch = make_batch([1.0, 0.0])
    exists = torch.ones(2, 3, dtype=torch.bool)
    clock = torch.tensor([0.9**2, 0.9, 1.0]).expand(2, 3) * 0.5
    metrics = critic_metrics(batch, clock, batch.rewards_BT, exists, next_B=NOTHING, gamma=0.9)
    assert metrics["credit/explained_variance"] == pytest.approx(metrics["credit/explained_variance_clock"], abs=1e-6)
    knowing = 2 * clock * torch.tensor([[1.0], [0.0]])
    metrics = critic_metrics(batch, knowing, batch.rewards_BT, exists, next_B=NOTHING, gamma=0.9)
    assert metrics["credit/explained_variance"] == pytest.approx(1.0)
    assert metrics["credit/explained_variance_clock"] < 0.1


def test_without_a_discount_the_clock_says_nothing() -> None:
    batch = make_batch([1.0, 0.0])
    exists = torch.ones(2, 3, dtype=torch.bool)
    metrics = critic_metrics(batch, torch.zeros(2, 3), batch.rewards_BT, exists, next_B=NOTHING, gamma=1.0)
    assert metrics == {"credit/explained_variance": pytest.approx(0.0)}
