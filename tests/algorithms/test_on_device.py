"""Estimators, metrics of batches, and the formulas of critics and reward models give the same on a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from batches import COLUMNS, OPTIONS, Rows, any_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_table import METRICS
from pretended_device import DEVICE, pretended_device, put, take

from verl_agentic.credit.advantage import advantage_names, load_advantage
from verl_agentic.credit.aggregate import masked, row_means, row_sums, token_mean, weights_of_mean_one
from verl_agentic.credit.batch_metrics.diversity import sequence_keys
from verl_agentic.credit.estimate import CreditSettings, estimate
from verl_agentic.credit.losses.successes import positive_share
from verl_agentic.credit.losses.token_log_probs import token_log_probs
from verl_agentic.methods.losses.dpo import dpo_loss
from verl_agentic.methods.losses.hl_gauss import bin_edges, decode_values, hl_gauss_loss
from verl_agentic.methods.losses.implicit_reward import implicit_rewards, outcome_loss
from verl_agentic.methods.losses.pear import PearSettings, pear_weights
from verl_agentic.methods.losses.target_network import TargetNetwork

Tensor = torch.Tensor
few = settings(max_examples=4)
"""A rule of devices hardly depends on the numbers."""


def check_same(function: Callable[..., Any], *inputs: Any) -> None:
    """Fails unless a function gives the same on the device as on the CPU."""
    expected = function(*inputs)
    with pretended_device():
        got = take(function(*(put(value) for value in inputs)))
    if isinstance(expected, Tensor | tuple | list):
        torch.testing.assert_close(got, expected, equal_nan=True)
    else:
        assert got == pytest.approx(expected, nan_ok=True)


@pytest.mark.sample(1, slow=8)
@pytest.mark.parametrize("name", advantage_names())
@few
@given(data=st.data(), dtype=st.sampled_from([torch.float32, torch.bfloat16]))
def test_every_estimator(name: str, data: Any, dtype: torch.dtype) -> None:
    estimator = load_advantage(name)
    wanted = estimator.needs | estimator.accepts if data.draw(st.booleans()) else estimator.needs
    rows = data.draw(any_rows(needs={column for column in wanted if column in COLUMNS} | {"source_B"}, dense=True))
    options = CreditSettings(by_source=True, clip=5.0, options=OPTIONS.get(name, {}))

    def run(rewards: Tensor, mask: Tensor, columns: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        credit = estimate(estimator, replace(rows, rewards=rewards, mask=mask, columns=columns).batch(), options)
        return credit.advantages_BT, credit.returns_BT

    columns = {
        column: value.to(dtype) if column.endswith("_BT") and value.is_floating_point() else value
        for column, value in rows.columns.items()
    }
    check_same(run, rows.rewards.to(dtype), rows.mask, columns)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", METRICS)
@few
@given(rows=any_rows(needs=COLUMNS))
def test_every_metric_of_a_batch(name: str, rows: Rows) -> None:
    def run(rewards: Tensor, mask: Tensor, columns: Mapping[str, Any]) -> Mapping[str, float]:
        return METRICS[name](replace(rows, rewards=rewards, mask=mask, columns=columns).batch())

    check_same(run, rows.rewards, rows.mask, rows.columns)


def _draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


LOG_PROB_BT, REF_BT, LOGITS_BTN = -_draw(4, 6).abs(), -_draw(4, 6).abs().flip(0), _draw(4, 6, 11)
MASK_BT, OUTCOME_B = _draw(4, 6).flip(1) > 0, torch.tensor([0.0, 1.0, 0.0, 1.0])
FORMULAS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "masked": (masked, (LOG_PROB_BT, MASK_BT)),
    "row_sums": (row_sums, (LOG_PROB_BT, MASK_BT)),
    "row_means": (row_means, (LOG_PROB_BT, MASK_BT)),
    "token_mean": (token_mean, (LOG_PROB_BT, MASK_BT)),
    "weights_of_mean_one": (weights_of_mean_one, (-LOG_PROB_BT, MASK_BT)),
    "hl_gauss_loss": (hl_gauss_loss, (LOGITS_BTN, REF_BT, MASK_BT, bin_edges(-1.0, 1.0, 11))),
    "decode_values": (decode_values, (LOGITS_BTN, MASK_BT, bin_edges(-1.0, 1.0, 11))),
    "dpo_loss": (
        lambda c, r, rc, rr: dpo_loss(c, r, ref_chosen_P=rc, ref_rejected_P=rr).loss_P,
        (LOG_PROB_BT[:, 0], LOG_PROB_BT[:, 1], REF_BT[:, 0], REF_BT[:, 1]),
    ),
    "outcome_loss": (
        lambda p, y, ref: outcome_loss(p, y, ref_log_prob_B=ref).loss_B,
        (LOG_PROB_BT[:, 0], OUTCOME_B, REF_BT[:, 0]),
    ),
    "implicit_rewards": (implicit_rewards, (LOG_PROB_BT, REF_BT, MASK_BT)),
    "positive_share": (positive_share, (OUTCOME_B, MASK_BT.sum(dim=1))),
    "sequence_keys": (sequence_keys, ((9 * _draw(4, 6)).long(), MASK_BT)),
    "token_log_probs": (
        lambda hidden, weight, labels, scale: token_log_probs(hidden, weight, labels, scale, with_entropy=True),
        (_draw(5, 4), _draw(7, 4), torch.tensor([0, 3, 6, 2, 1]), torch.full((5,), 1.5)),
    ),
    **{
        f"pear_weights {level}": (
            lambda ratio, turns, level=level: pear_weights(ratio, turns, PearSettings(level=cast("Any", level))),
            (_draw(12), torch.arange(12) // 3),
        )
        for level in ("token", "block", "sequence")
    },
}


@pytest.mark.parametrize("name", FORMULAS)
def test_every_formula(name: str) -> None:
    check_same(FORMULAS[name][0], *FORMULAS[name][1])


def test_bins_are_made_on_the_device() -> None:
    with pretended_device() as waits:
        edges = bin_edges(-1.0, 1.0, 11, device=DEVICE)
        assert edges.device == DEVICE
    assert not waits


def test_a_target_network_follows_on_its_device() -> None:
    def run(weights: Mapping[str, Tensor], later: Mapping[str, Tensor]) -> list[Tensor]:
        target = TargetNetwork(weights, tau=0.1)
        target.update(later)
        target.load_state_dict({name: copy.clone() for name, copy in target.state_dict().items()})
        with target.in_place_of(lambda: later):
            assert later["w"].device == target.state_dict()["w"].device
        return list(target.state_dict().values())

    check_same(run, {"w": _draw(6), "b": _draw(3).bfloat16()}, {"w": _draw(6).flip(0), "b": _draw(3)})


def _on_device(function: Callable[..., Any], *inputs: Any) -> Any:
    with pretended_device():
        return function(*(put(value) for value in inputs))
