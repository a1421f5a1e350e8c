"""Outcomes as labels of a classifier over siblings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.credit.policy_loss import LossBatch, load_policy_loss

Tensor = torch.Tensor
Make = Callable[..., LossBatch]
pacs = load_policy_loss("pacs")


def one_group(loss_batch: Make, scores: list[float], outcomes: list[float], **columns: Any) -> LossBatch:
    """Returns rows of one group with one sampled token each and these scores; old log-probs are 0."""
    count = len(scores)
    columns = {"group_B": [0] * count, "group_size_B": [count] * count, **columns}
    return loss_batch(
        log_prob=[[score] for score in scores], old_log_prob=[[0.0]] * count, outcome_B=outcomes, **columns
    )


def per_row(batch: LossBatch, **options: Any) -> Tensor:
    return cast("Tensor", pacs(batch, **options).per_row_B)


def test_the_loss_is_the_vector(loss_batch: Make) -> None:
    """Sums of log-probs -10, -12, -11, -9 against -10.5, -11, -11, -9.5, over two sampled tokens each."""
    batch = loss_batch(
        log_prob=[[-4.0, 99.0, -6.0], [-5.0, 9.0, -7.0], [-5.0, 99.0, -6.0], [-4.0, 9.0, -5.0]],
        old_log_prob=[[-4.5, 0.0, -6.0], [-5.0, 0.0, -6.0], [-5.0, 0.0, -6.0], [-4.5, 0.0, -5.0]],
        mask=[[1, 0, 1]] * 4,
        group_B=[7] * 4,
        group_size_B=[4] * 4,
        outcome_B=[1.0, 0.0, 0.0, 1.0],
    )
    expected = F.binary_cross_entropy_with_logits(
        torch.tensor([0.666667, -1.333333, 0.0, 0.666667]), torch.tensor([1.0, 0.0, 0.0, 1.0]), reduction="none"
    )
    loss_B = per_row(batch)
    torch.testing.assert_close(loss_B, expected)
    assert float(loss_B.detach().mean()) == pytest.approx(0.438962, abs=1e-6)
    # Scores above 0 for both right ones, and not above 0 for both wrong ones.
    assert pacs(batch).metrics == {"pacs_accuracy": 1.0}


def test_beta_scales_the_score(loss_batch: Make) -> None:
    batch = one_group(loss_batch, [0.2, -0.1], [1.0, 0.0])
    expected = F.softplus(torch.tensor([-0.6, -0.6]))  # psi = +-0.3, beta 2
    torch.testing.assert_close(per_row(batch, beta=2.0), expected)


def test_gradients_flow_through_the_siblings(loss_batch: Make) -> None:
    """At equal scores d loss_i / d psi_i = (1/2 - y_i), d psi_i / d r_j = 1 for i and -1/(n-1) for its siblings."""
    batch = one_group(loss_batch, [0.0, 0.0, 0.0], [1.0, 0.0, 0.0])
    (found,) = torch.autograd.grad(per_row(batch, balanced=False).sum(), batch.log_prob_BT)
    # Row 0: -1/2 - 1/2 (1/2 + 1/2) = -1; rows 1 and 2: 1/2 - 1/2 (-1/2 + 1/2) = 1/2.
    torch.testing.assert_close(found, torch.tensor([[-1.0], [0.5], [0.5]]))


def test_rare_labels_weigh_more(loss_batch: Make) -> None:
    """One right row of four: weights 4 / (2 * 1) and 4 / (2 * 3)."""
    batch = one_group(loss_batch, [0.3, 0.1, 0.0, -0.2], [1.0, 0.0, 0.0, 0.0])
    plain = per_row(batch, balanced=False)
    torch.testing.assert_close(per_row(batch), plain * torch.tensor([2.0, 2 / 3, 2 / 3, 2 / 3]))


def test_a_group_of_one_label_keeps_its_weights(loss_batch: Make) -> None:
    batch = one_group(loss_batch, [0.3, 0.1], [1.0, 1.0])
    assert torch.equal(per_row(batch), per_row(batch, balanced=False))


def test_groups_do_not_see_each_other(loss_batch: Make) -> None:
    both = loss_batch(
        log_prob=[[0.3], [5.0], [0.1], [-4.0]],
        old_log_prob=[[0.0]] * 4,
        group_B=[9, 2, 9, 2],
        group_size_B=[2] * 4,
        outcome_B=[1.0, 0.0, 0.0, 1.0],
    )
    alone = one_group(loss_batch, [0.3, 0.1], [1.0, 0.0])
    torch.testing.assert_close(per_row(both)[[0, 2]], per_row(alone))


@pytest.mark.parametrize("void", ["no tokens", "no outcome"])
def test_void_rows_have_no_loss_and_no_part_in_the_mean(loss_batch: Make, void: str) -> None:
    outcomes = [1.0, 0.0, 0.0 if void == "no tokens" else float("nan")]
    mask = [[1], [1], [0 if void == "no tokens" else 1]]
    batch = one_group(loss_batch, [0.3, 0.1, 50.0], outcomes, mask=mask)
    loss_B = per_row(batch)
    torch.testing.assert_close(loss_B[:2], per_row(one_group(loss_batch, [0.3, 0.1], [1.0, 0.0])))
    assert float(loss_B.detach()[2]) == 0.0
    (found,) = torch.autograd.grad(loss_B.sum(), batch.log_prob_BT)
    assert float(found[2]) == 0.0 and float(found[0]) != 0.0


def test_a_row_without_siblings_has_no_loss(loss_batch: Make) -> None:
    assert torch.equal(per_row(one_group(loss_batch, [3.0], [1.0])), torch.zeros(1))


def test_a_split_group_names_the_settings_to_change(loss_batch: Make) -> None:
    batch = one_group(loss_batch, [0.1, 0.2], [1.0, 0.0], group_size_B=[4, 4])
    message = r"2 of the 4 rows of one; set actor\.shuffle=false, and make groups equal: no compaction"
    with pytest.raises(ConfigError, match=message):
        pacs(batch)


@pytest.mark.parametrize(("outcome", "shown"), [(-1.0, r"-1\.0 to 1\.0"), (1.5, r"1\.0 to 1\.5")])
def test_outcomes_outside_0_to_1_are_refused(loss_batch: Make, outcome: float, shown: str) -> None:
    with pytest.raises(DataError, match=r"outcomes in \[0, 1\], got " + shown):
        pacs(one_group(loss_batch, [0.1, 0.2], [1.0, outcome]))
