from __future__ import annotations

import math

import pytest
import torch
from batches import make_batch

from verl_agentic.credit.credit.gae import gae
from verl_agentic.methods.advantages.vtrace import vtrace, vtrace_targets

REWARDS, VALUES = torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([[0.5, 0.6, 0.8]])
RATIOS = torch.tensor([[0.5, 2.0, 1.0]])
ALL, NOTHING = torch.ones(1, 3, dtype=torch.bool), torch.tensor([-1])


def off_policy(**options):
    rollout = torch.full((1, 3), -1.0)
    batch = make_batch([1.0], values_BT=VALUES, rollout_log_probs_BT=rollout, old_log_probs_BT=rollout + RATIOS.log())
    return vtrace(batch, **options)


def test_vector() -> None:
    targets = vtrace_targets(REWARDS, VALUES, RATIOS, ALL, next_B=NOTHING)
    torch.testing.assert_close(targets, torch.tensor([[0.75, 1.0, 1.0]]))
    torch.testing.assert_close(off_policy().returns_BT, torch.tensor([[0.75, 1.0, 1.0]]))


def test_advantages_are_weighted_errors_towards_the_next_target() -> None:
    # 0.5 * (1 - 0.5), 1 * (1 - 0.6), 1 * (1 - 0.8).
    torch.testing.assert_close(off_policy().advantages_BT, torch.tensor([[0.25, 0.4, 0.2]]))


def test_bounds_of_rho_and_c_and_lambda() -> None:
    # rho 2 at token 1: v1 = 0.6 + 2 * 0.2 + 2 * 0.2 = 1.4 with c 2, 1.2 with c 1, 1 with lambda 0.
    for c_clip, lam, expected in [(2.0, 1.0, 1.4), (1.0, 1.0, 1.2), (2.0, 0.0, 1.0)]:
        targets = vtrace_targets(REWARDS, VALUES, RATIOS, ALL, next_B=NOTHING, rho_clip=2.0, c_clip=c_clip, lam=lam)
        assert float(targets[0, 1]) == pytest.approx(expected)


def test_on_policy_targets_are_lambda_returns() -> None:
    generator = torch.Generator().manual_seed(0)
    values, log_probs = torch.randn(3, 6, generator=generator), torch.randn(3, 6, generator=generator)
    mask = torch.tensor([[1, 1, 0, 1, 1, 1], [1, 0, 0, 1, 0, 0], [0, 1, 1, 1, 1, 0]])
    batch = make_batch(
        [1.0, 0.0, 2.0], mask=mask, values_BT=values, old_log_probs_BT=log_probs, rollout_log_probs_BT=log_probs
    )
    given = vtrace(batch, gamma=0.9, lam=0.8)
    expected = gae(batch.rewards_BT, values, mask.bool(), next_B=torch.full((3,), -1), gamma=0.9, lam=0.8)
    torch.testing.assert_close(given.returns_BT, torch.where(mask.bool(), expected + values, 0.0))


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf])
def test_observations_have_no_ratio_no_value_and_take_no_time(garbage: float) -> None:
    def column(a: float, b: float, c: float) -> torch.Tensor:
        return torch.tensor([[a, garbage, b, garbage, c]])

    batch = make_batch(
        [1.0],
        mask=torch.tensor([[1, 0, 1, 0, 1]]),
        values_BT=column(0.5, 0.6, 0.8),
        old_log_probs_BT=column(math.log(0.5), math.log(2.0), 0.0),
        rollout_log_probs_BT=column(0.0, 0.0, 0.0),
    )
    given = vtrace(batch)
    torch.testing.assert_close(given.returns_BT, torch.tensor([[0.75, 0.0, 1.0, 0.0, 1.0]]))
    torch.testing.assert_close(given.advantages_BT, torch.tensor([[0.25, 0.0, 0.4, 0.0, 0.2]]))
