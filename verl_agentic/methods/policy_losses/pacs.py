"""PACS: a classifier of outcomes whose score is the log-ratio of a row."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.base.metric import Metric
from verl_agentic.credit.aggregate import row_sums
from verl_agentic.credit.credit.group_statistics import group_counts, group_means
from verl_agentic.credit.policy_loss import Loss, LossBatch, policy_loss

METRICS = (
    Metric(
        name="actor/pacs_accuracy",
        unit="share",
        per="session, mean of micro-batches",
        rows="valid sessions with siblings",
    ),
)


@policy_loss(needs=("group_B", "group_size_B", "outcome_B"), uses_advantages=False)
def pacs(batch: LossBatch, *, beta: float = 1.0, balanced: bool = True) -> Loss:
    """Returns `BCEWithLogits(psi_i, y_i)` per session: y_i its outcome, psi_i its score minus its siblings' mean.

        psi_i = r_i - mean_{j != i} r_j        r_i = beta sum_t (log pi - log pi_old) over sampled tokens

    The score covers all rows of a session, which share its loss equally. Gradients also flow through the siblings, so
    all rows of a group must be in one micro-batch: the trainers `agentic_*` keep groups of one size together
    (`verl.extensions.methods.trainer.whole_groups`). Rows without sampled tokens or without a finite outcome are void:
    they have no loss and are no siblings. Like every row, they count in verl's number of rows of a mini-batch, by which
    the sum is divided. Singletons have no loss. Advantages, clipping and
    `actor.loss_agg_mode` have no effect.

    Deviations: the authors sum over all positions of the response; here observations are masked.

    Args:
        beta: scale of the score.
        balanced: weighs a session with `n / (2 n_y)`, as in the authors' scripts; `n_y` of the group's n sessions have
            its label (above 0.5 or not). The weight is 1 if only one label occurs.

    Raises:
        ConfigError: a group is split over micro-batches.
        DataError: an outcome is outside of [0, 1].

    Paper: https://arxiv.org/abs/2509.02522
    """
    outcome_B = cast("Tensor", batch.outcome_B).float()
    group_B = _first_equal(cast("Tensor", batch.group_B))
    num_groups = num_sessions = len(group_B)  # at most: counting them would make the host wait
    valid_B = batch.mask_BT.any(dim=-1) & torch.isfinite(outcome_B)
    _check_rows(group_B, cast("Tensor", batch.group_size_B), torch.where(valid_B, outcome_B, 0.0))
    rows_B = torch.arange(len(group_B), device=group_B.device) if batch.session_B is None else batch.session_B
    session_B = _first_equal(rows_B)
    # Rows of a session have one group and one outcome. Invalid rows write to an extra place, which is cut off.
    place_B = torch.where(valid_B, session_B, num_sessions)
    group_S, label_S = (
        torch.zeros(num_sessions + 1, dtype=column_B.dtype, device=column_B.device).index_copy(0, place_B, column_B)[
            :-1
        ]
        for column_B in (group_B, outcome_B)
    )
    num_rows_S = torch.zeros(num_sessions + 1, device=group_B.device).index_add(0, place_B, valid_B.float())[:-1]
    valid_S = num_rows_S > 0
    row_scores_B = beta * row_sums(batch.log_prob_BT.float() - batch.old_log_prob_BT.float(), batch.mask_BT)
    scores_S = row_scores_B.new_zeros(num_sessions + 1).index_add(0, place_B, row_scores_B)[:-1]
    among = {"group_N": group_S, "valid_N": valid_S, "num_groups": num_groups}
    count_S = group_counts(**among)
    # r_i minus the mean of the others is r_i minus the mean of all, times n / (n - 1).
    logits_S = ((scores_S - group_means(scores_S, **among)) * count_S / (count_S - 1).clamp(min=1)).float()
    loss_S = F.binary_cross_entropy_with_logits(logits_S, label_S, reduction="none")
    counts_S = valid_S & (count_S > 1)
    if balanced:
        loss_S = loss_S * _class_weights(label_S > 0.5, group_S, valid_S=valid_S, num_groups=num_groups)
    is_right_S = (logits_S > 0) == (label_S > 0.5)
    accuracy = (is_right_S & counts_S).sum() / counts_S.sum().clamp(min=1)
    share_S = torch.where(counts_S, loss_S / num_rows_S.clamp(min=1), 0.0)
    per_row_B = torch.where(valid_B, share_S[session_B], 0.0)
    return Loss(per_row_B=per_row_B, is_shared=True, metrics={"pacs_accuracy": accuracy})


def _class_weights(is_positive_S: Tensor, group_S: Tensor, *, valid_S: Tensor, num_groups: int) -> Tensor:
    positive_S = group_counts(group_S, valid_N=valid_S & is_positive_S, num_groups=num_groups)
    negative_S = group_counts(group_S, valid_N=valid_S & ~is_positive_S, num_groups=num_groups)
    same_S = torch.where(is_positive_S, positive_S, negative_S)
    weights_S = (positive_S + negative_S) / (2 * same_S).clamp(min=1)
    return torch.where((positive_S > 0) & (negative_S > 0), weights_S, 1.0).float()


def _first_equal(keys_B: Tensor) -> Tensor:
    """Returns `[B]` int64 in `[0, B)`: equal where keys are, the place of the first one."""
    return (keys_B.unsqueeze(-1) == keys_B).byte().argmax(dim=-1) if len(keys_B) else keys_B


def _check_rows(group_B: Tensor, group_size_B: Tensor, label_B: Tensor) -> None:
    present_B = group_counts(group_B, valid_N=torch.ones_like(group_B, dtype=torch.bool), num_groups=len(group_B))
    is_split_B = present_B != group_size_B
    is_split, has_other_labels = torch.stack([is_split_B.any(), ((label_B < 0) | (label_B > 1)).any()]).tolist()
    if is_split:
        row = int(is_split_B.nonzero()[0])
        raise ConfigError(
            f"pacs compares the rows of a group, got a micro-batch with {int(present_B[row])} of the "
            f"{int(group_size_B[row])} rows of one; set actor.shuffle=false, and make groups equal: no compaction, no "
            "agentic.curriculum.group_size, and data.train_batch_size a multiple of the data-parallel ranks"
        )
    if has_other_labels:
        raise DataError(
            f"pacs needs outcomes in [0, 1], got {label_B.min().item()} to {label_B.max().item()}; let the rubric "
            "report `acc` as a share"
        )
