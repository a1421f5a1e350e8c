"""Direct preference optimization on P pairs of trajectories."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

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

    Raises:
        DataError: a trajectory without the one that it is compared with.

    Paper: https://arxiv.org/abs/2305.18290 (eq. 7)
    """
    if len(chosen_P) != len(rejected_P):
        raise DataError(
            f"every chosen trajectory needs a rejected one, got {len(chosen_P)} and {len(rejected_P)}; keep both in "
            "the same micro-batch (verl's force_group_size=2)"
        )
    margin_P = beta * ((chosen_P - ref_chosen_P) - (rejected_P - ref_rejected_P))
    return Preference(loss_P=-F.logsigmoid(margin_P), margin_P=margin_P.detach())
