"""Numbers at masked tokens (NaN, infinities, 1e30) reach no value, gradient or metric.

Policy losses and estimators have the same test beside their other properties.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import get_args

import pytest
import torch
from batches import COLUMNS, Rows, any_rows
from hypothesis import given
from metric_table import METRICS

from verl_agentic.credit.aggregate import masked, row_means, row_sums, token_mean, weights_of_mean_one
from verl_agentic.credit.losses.kl import Estimator, kl_per_token, sequence_k3, trajectory_kl
from verl_agentic.credit.losses.ppo import log_ratios
from verl_agentic.methods.losses.hl_gauss import bin_edges, decode_values, hl_gauss_loss
from verl_agentic.methods.losses.implicit_reward import implicit_rewards

Tensor = torch.Tensor
EDGES = bin_edges(-1.0, 1.0, 5)
FORMULAS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "masked": lambda x, y, mask: masked(x, mask),
    "row_sums": lambda x, y, mask: row_sums(x, mask),
    "row_means": lambda x, y, mask: row_means(x, mask),
    "token_mean": lambda x, y, mask: token_mean(x, mask),
    "weights_of_mean_one": lambda x, y, mask: weights_of_mean_one(y.abs(), mask) * masked(x, mask),
    "log_ratios": lambda x, y, mask: log_ratios(x, y, mask).exp(),
    "trajectory_kl": trajectory_kl,
    "sequence_k3": sequence_k3,
    "implicit_rewards": implicit_rewards,
    "hl_gauss_loss": lambda x, y, mask: hl_gauss_loss(_bins(x), y, mask, EDGES),
    "decode_values": lambda x, y, mask: decode_values(_bins(x), mask, EDGES),
    **{
        f"kl {name}": lambda x, y, mask, name=name: kl_per_token(
            name, log_prob_BT=x, ref_log_prob_BT=y, old_log_prob_BT=y.flip(0), mask_BT=mask
        )
        for name in get_args(Estimator)
    },
}


def _bins(x_BT: Tensor) -> Tensor:
    return torch.stack([x_BT, -x_BT, 0.5 * x_BT, 2 * x_BT, 1 - x_BT], dim=-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf, 1e30, -1e30])
@pytest.mark.parametrize("name", FORMULAS)
def test_no_value_and_no_gradient_depends_on_masked_tokens(name: str, garbage: float, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    x_BT, y_BT = (-torch.rand(4, 7, generator=generator).to(dtype) for _ in range(2))
    mask_BT = torch.rand(4, 7, generator=generator) < 0.6
    mask_BT |= mask_BT.flip(0)  # `kl` above reads the other row
    mask_BT[1:3] = mask_BT[1:2]
    mask_BT[0] = mask_BT[3] = False

    def run(value: float) -> tuple[Tensor, Tensor]:
        x, y = (torch.where(mask_BT, column_BT, value).requires_grad_() for column_BT in (x_BT, y_BT))
        result = FORMULAS[name](x, y, mask_BT)
        result.sum().backward()
        assert x.grad is not None
        return result.detach(), x.grad

    (value, gradient), (expected, slope) = run(garbage), run(0.5)
    assert value.isfinite().all() and gradient.isfinite().all() and slope.count_nonzero()
    assert torch.equal(value, expected) and torch.equal(gradient, slope)


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", METRICS)
@given(rows=any_rows(needs=COLUMNS, dense=True))
def test_no_metric_depends_on_masked_tokens(name: str, rows: Rows) -> None:
    clean, dirty = (dict(METRICS[name](one.batch())) for one in (rows, rows.with_garbage()))
    assert dirty == pytest.approx(clean, abs=0, rel=0, nan_ok=True)
