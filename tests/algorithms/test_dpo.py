"""Preferences between trajectories with masks."""

from __future__ import annotations

import math

import pytest
import torch

from verl_agentic.algorithms.dpo import dpo_loss, dpo_of_rows
from verl_agentic.errors import DataError


def of(*values: float) -> torch.Tensor:
    return torch.tensor(values)


def test_the_loss_is_the_vector() -> None:
    pair = dpo_loss(of(-10.0), of(-15.0), ref_chosen_P=of(-12.0), ref_rejected_P=of(-14.0), beta=0.1)
    assert float(pair.margin_P) == pytest.approx(0.3)
    assert float(pair.loss_P) == pytest.approx(0.554355, abs=1e-6)


def test_at_the_reference_it_is_ln_2() -> None:
    pair = dpo_loss(of(-10.0), of(-15.0), ref_chosen_P=of(-10.0), ref_rejected_P=of(-15.0))
    assert float(pair.loss_P) == pytest.approx(math.log(2))


def test_rows_are_pairs_and_only_sampled_tokens_count() -> None:
    mask_BT = torch.tensor([[1, 0, 1], [1, 1, 0], [1, 1, 1], [0, 0, 1]]).bool()
    log_prob_BT = torch.tensor([[-4.0, 99.0, -6.0], [-7.0, -8.0, 99.0], [-1.0] * 3, [99.0, 99.0, -3.0]])
    ref_BT = torch.tensor([[-5.0, -99.0, -7.0], [-7.0, -7.0, -99.0], [-1.0] * 3, [0.0, 0.0, -3.0]])
    pairs = dpo_of_rows(log_prob_BT, ref_BT, mask_BT, beta=0.1)
    torch.testing.assert_close(pairs.loss_P, of(0.554355, 0.693147), atol=1e-6, rtol=0)
    torch.testing.assert_close(pairs.margin_P, of(0.3, 0.0))


def test_gradients_push_chosen_up_and_rejected_down_and_are_zero_at_masked_tokens() -> None:
    log_prob_BT = torch.tensor([[-1.0, float("nan")], [-1.0, -1.0]], requires_grad=True)
    mask_BT = torch.tensor([[True, False], [True, True]])
    pairs = dpo_of_rows(log_prob_BT, torch.tensor([[-1.0, 0.0], [-1.0, -1.0]]), mask_BT, beta=0.1)
    (slope,) = torch.autograd.grad(pairs.loss_P.sum(), log_prob_BT)
    # At the reference: beta * sigmoid(0) = .05.
    torch.testing.assert_close(slope, torch.tensor([[-0.05, 0.0], [0.05, 0.05]]))


def test_micro_batches_of_pairs_add_up() -> None:
    torch.manual_seed(0)
    log_prob_BT, ref_BT, mask_BT = torch.randn(6, 5), torch.randn(6, 5), torch.rand(6, 5) < 0.7
    whole = dpo_of_rows(log_prob_BT, ref_BT, mask_BT).loss_P
    pieces = [dpo_of_rows(log_prob_BT[r], ref_BT[r], mask_BT[r]).loss_P for r in (slice(0, 2), slice(2, 6))]
    torch.testing.assert_close(torch.cat(pieces), whole)


def test_an_odd_number_of_rows_is_refused() -> None:
    with pytest.raises(DataError, match=r"even number of rows, got 3.*force_group_size=2"):
        dpo_of_rows(torch.zeros(3, 2), torch.zeros(3, 2), torch.ones(3, 2, dtype=torch.bool))
