"""The loss of the DPO trainer, whose data and runs are tested in test_reference_trainer and cpu/."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from jagged import MASK, ROWS, log_probs_of, nested

from verl_agentic.base.errors import DataError
from verl_agentic.verl.extensions.offline.dpo_trainer import DpoSettings, pair_loss

HALF = DpoSettings(beta=0.5)


def batch(**changes: Any) -> dict[str, Any]:
    reference = nested([-2.0], [-1.0], [-4.0], [-1.0])
    return {"loss_mask": MASK, "ref_log_prob": reference, "global_batch_size": 4, "dp_size": 2, **changes}


def test_the_loss_is_the_share_of_this_part_in_the_mean_over_all_pairs() -> None:
    _, log_probs = log_probs_of(*ROWS)
    loss, metrics = pair_loss({"log_probs": log_probs}, batch(), settings=HALF)
    # Margins: 0.5 ((-3 + 2) - (-0.5 + 1)) = -0.75, and 0.5 (0 - 0) = 0.
    expected = math.log1p(math.exp(0.75)) + math.log(2)
    assert loss.item() == pytest.approx(expected / 4 * 2, rel=1e-6)
    # Log-ratios: -1 and 0 of the chosen ones, 0.5 and 0 of the rejected ones.
    assert metrics == {
        "train/margin": pytest.approx(-0.75 / 4),
        "train/accuracy": 0.0,
        "train/chosen": pytest.approx(-1 / 4),
        "train/rejected": pytest.approx(0.5 / 4),
    }


def test_the_chosen_sides_own_log_prob_counts_per_trained_token() -> None:
    _, log_probs = log_probs_of(*ROWS)
    plain, plain_metrics = pair_loss({"log_probs": log_probs}, batch(), settings=HALF)
    pulled, metrics = pair_loss({"log_probs": log_probs}, batch(), settings=DpoSettings(beta=0.5, chosen_weight=0.2))
    # The chosen rows have 2 tokens worth -3, and 1 worth -4.
    assert (pulled - plain).item() == pytest.approx(0.2 * (3 / 2 + 4 / 1) / 4 * 2, rel=1e-6)
    assert metrics == plain_metrics


def part(first: int, last: int) -> float:
    """Returns the loss of a micro-batch of some rows."""
    _, log_probs = log_probs_of(*ROWS[first:last])
    rows = slice(first, last)
    mask = torch.nested.as_nested_tensor(list(MASK.unbind())[rows], layout=torch.jagged)
    reference = nested(*[[-2.0], [-1.0], [-4.0], [-1.0]][rows])
    changes = {"loss_mask": mask, "ref_log_prob": reference}
    return pair_loss({"log_probs": log_probs}, batch(**changes), settings=HALF)[0].item()


def test_micro_batches_of_pairs_add_up_and_half_a_pair_is_refused() -> None:
    assert part(0, 2) + part(2, 4) == pytest.approx(part(0, 4), rel=1e-6)
    with pytest.raises(DataError, match="2 and 1"):
        part(0, 3)


def test_masked_tokens_have_no_influence_on_loss_and_gradient() -> None:
    clean, log_probs = log_probs_of(*ROWS)
    loss, _ = pair_loss({"log_probs": log_probs}, batch(), settings=HALF)
    loss.backward()
    noise = [[-1.0, math.nan, -2.0, 1e30], [math.inf, -0.5, -math.inf], [-4.0, math.nan], [1e30, -1.0, -1e30]]
    dirty, log_probs = log_probs_of(*noise)
    same, _ = pair_loss({"log_probs": log_probs}, batch(), settings=HALF)
    same.backward()
    assert clean.grad is not None and dirty.grad is not None
    assert same.item() == loss.item() and torch.equal(clean.grad, dirty.grad)
    assert clean.grad.nonzero().flatten().tolist() == [0, 2, 5, 7, 10]
    # Chosen ones gain, rejected ones lose.
    assert clean.grad[[0, 2, 7]].max() < 0 < clean.grad[[5, 10]].min()
