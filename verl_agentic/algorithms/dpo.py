"""Direct preference optimization on trajectories with masks: B rows of T tokens, P = B / 2 pairs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from verl_agentic.algorithms.aggregate import row_sums
from verl_agentic.errors import DataError

Tensor = torch.Tensor


@dataclass(frozen=True, kw_only=True)
class Preference:
    """The loss of pairs."""

    loss_P: Tensor
    """`[P]` float32"""
    margin_P: Tensor
    """`[P]` float32, without gradient: by how much the policy's implicit reward prefers the chosen one."""


def dpo_loss(
    chosen_P: Tensor, rejected_P: Tensor, *, ref_chosen_P: Tensor, ref_rejected_P: Tensor, beta: float = 0.1
) -> Preference:
    """Returns `-log sigmoid(beta ((pi_c - ref_c) - (pi_r - ref_r)))` of log-probs of whole trajectories.

    Args:
        chosen_P: `[P]` float: log-prob of the preferred trajectory under the policy, its sampled tokens only.
        rejected_P: `[P]` float: of the other one.
        ref_chosen_P: `[P]` float: under the reference policy.
        ref_rejected_P: `[P]` float
        beta: how much the policy may move away from the reference; a common choice, from memory.

    Paper: https://arxiv.org/abs/2305.18290 (eq. 7)
    """
    margin_P = beta * ((chosen_P - ref_chosen_P) - (rejected_P - ref_rejected_P))
    return Preference(loss_P=-F.logsigmoid(margin_P), margin_P=margin_P.detach())


def dpo_of_rows(log_prob_BT: Tensor, ref_log_prob_BT: Tensor, mask_BT: Tensor, *, beta: float = 0.1) -> Preference:
    """Returns the loss of pairs that lie in consecutive rows: the chosen trajectory, then the rejected one.

    Observations, prompts and padding are out of the sums: with them, whichever trajectory has the likelier tool
    output would be preferred.

    Args:
        log_prob_BT: `[B, T]` float: under the policy.
        ref_log_prob_BT: `[B, T]` float: under the reference policy.
        mask_BT: `[B, T]` bool: true on tokens that a policy sampled.
        beta: as in `dpo_loss`.

    Raises:
        DataError: an odd number of rows.
    """
    if len(log_prob_BT) % 2:
        raise DataError(
            f"pairs need an even number of rows, got {len(log_prob_BT)}; keep a chosen and a rejected trajectory in "
            "the same micro-batch (verl's force_group_size=2)"
        )
    sums_B, ref_B = row_sums(log_prob_BT, mask_BT), row_sums(ref_log_prob_BT, mask_BT)
    return dpo_loss(sums_B[0::2], sums_B[1::2], ref_chosen_P=ref_B[0::2], ref_rejected_P=ref_B[1::2], beta=beta)
