"""Preferences between trajectories with masks."""

from __future__ import annotations

import math

import pytest
import torch

from verl_agentic.base.errors import DataError
from verl_agentic.methods.losses.dpo import dpo_loss


def of(*values: float) -> torch.Tensor:
    return torch.tensor(values)


def test_the_loss_is_the_vector() -> None:
    pair = dpo_loss(of(-10.0), of(-15.0), ref_chosen_P=of(-12.0), ref_rejected_P=of(-14.0), beta=0.1)
    assert float(pair.margin_P) == pytest.approx(0.3)
    assert float(pair.loss_P) == pytest.approx(0.554355, abs=1e-6)


def test_at_the_reference_it_is_ln_2() -> None:
    pair = dpo_loss(of(-10.0), of(-15.0), ref_chosen_P=of(-10.0), ref_rejected_P=of(-15.0))
    assert float(pair.loss_P) == pytest.approx(math.log(2))


def test_gradients_push_chosen_up_and_rejected_down() -> None:
    chosen_P, rejected_P = of(-1.0).requires_grad_(), of(-2.0).requires_grad_()
    pair = dpo_loss(chosen_P, rejected_P, ref_chosen_P=of(-1.0), ref_rejected_P=of(-2.0), beta=0.1)
    slopes = torch.autograd.grad(pair.loss_P.sum(), [chosen_P, rejected_P])
    # At the reference: beta * sigmoid(0) = .05.
    torch.testing.assert_close(torch.stack(slopes), torch.tensor([[-0.05], [0.05]]))


def test_a_trajectory_without_the_other_one_is_refused() -> None:
    with pytest.raises(DataError, match="force_group_size"):
        dpo_loss(torch.zeros(2), torch.zeros(1), ref_chosen_P=torch.zeros(2), ref_rejected_P=torch.zeros(1))
