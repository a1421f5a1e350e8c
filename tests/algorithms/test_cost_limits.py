"""Multipliers of costs with limits, and the reward that an estimator gets."""

from __future__ import annotations

import math

import pytest
import torch

from verl_agentic.base.errors import ConfigError
from verl_agentic.methods.cost_limits import CostCharges, CostLimitSettings, next_multiplier

UNSAFE = CostLimitSettings(max_mean={"unsafe": 0.1}, lr=0.5, initial=1.0, max_multiplier=3.0)


@pytest.mark.parametrize(
    ("multiplier", "mean_cost", "expected"),
    [(1.0, 0.3, 1.1), (1.0, 0.1, 1.0), (0.02, 0.0, 0.0), (0.0, 0.3, 0.1), (2.9, 0.9, 3.0)],
    ids=["above the limit", "at the limit", "falls to 0", "leaves 0", "has a maximum"],
)
def test_a_multiplier_rises_with_the_excess_over_the_limit(
    multiplier: float, mean_cost: float, expected: float
) -> None:
    got = next_multiplier(multiplier, name="unsafe", mean_cost=mean_cost, settings=UNSAFE)
    assert got == pytest.approx(expected)


def test_the_scale_divides_the_excess() -> None:
    settings = CostLimitSettings(max_mean={"tokens": 400.0}, scales={"tokens": 200.0}, lr=0.5)
    assert next_multiplier(1.0, name="tokens", mean_cost=600.0, settings=settings) == pytest.approx(1.5)


def test_rewards_are_lowered_by_charges_and_keep_their_scale() -> None:
    charges = CostCharges(charges_BT=torch.tensor([[0.0, 3.0], [0.0, 0.0]]), total_multiplier=3.0)
    changed = charges.added_to(torch.tensor([[0.0, 1.0], [0.5, 1.0]]))
    assert changed.tolist() == [[0.0, -0.5], [0.125, 0.25]]


def test_a_policy_that_earns_more_by_unsafe_acts_ends_at_the_limit() -> None:
    """Plays a bandit of one unsafe arm, with exact gradients of a logistic policy."""
    settings, multiplier, logit = CostLimitSettings(max_mean={"unsafe": 0.2}, lr=0.05), 0.0, 0.0
    shares = []
    for _ in range(20_000):
        share = 1 / (1 + math.exp(-logit))
        advantage = (1.0 - multiplier) / (1.0 + multiplier)  # the unsafe arm earns 1 and costs 1, the other one 0
        logit += 0.3 * share * (1 - share) * advantage
        multiplier = next_multiplier(multiplier, name="unsafe", mean_cost=share, settings=settings)
        shares.append(share)
    assert max(shares) > 0.5, "without a multiplier the unsafe arm is better"
    assert sum(shares[-10_000:]) / 10_000 == pytest.approx(0.2, abs=0.01)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_mean": {}}, "max_mean"),
        ({"max_mean": {"a": 1.0}, "scales": {"b": 1.0}}, "'b'"),
        ({"max_mean": {"a": 1.0}, "initial": 200.0}, "initial"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(values: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CostLimitSettings(**values)
