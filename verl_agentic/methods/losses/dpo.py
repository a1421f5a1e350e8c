"""Direct preference optimization on P pairs of trajectories."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from verl_agentic.base.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Preference:
    """The loss of pairs."""

    loss_P: Tensor
    """`[P]` float32"""
    margin_P: Tensor
    """`[P]` float32, without gradient: implicit reward of the chosen trajectory minus that of the rejected one."""


def dpo_loss(
    chosen_P: Tensor, rejected_P: Tensor, *, ref_chosen_P: Tensor, ref_rejected_P: Tensor, beta: float = 0.1
) -> Preference:
    """Returns `-log sigmoid(beta ((pi_c - ref_c) - (pi_r - ref_r)))` of log-probs of whole trajectories.

    Args:
        chosen_P: `[P]` float: log-prob of the preferred trajectory under the policy, its sampled tokens only.
        rejected_P: `[P]` float: of the rejected trajectory.
        ref_chosen_P, ref_rejected_P: the same under the reference policy.
        beta: strength of the pull towards the reference; the default is a common choice.

    Raises:
        DataError: a trajectory lacks its counterpart.

    Paper: https://arxiv.org/abs/2305.18290 (eq. 7)
    """
    if len(chosen_P) != len(rejected_P):
        raise DataError(
            f"every chosen trajectory needs a rejected one, got {len(chosen_P)} and {len(rejected_P)}; keep both in "
            "the same micro-batch (verl's force_group_size=2)"
        )
    margin_P = beta * ((chosen_P - ref_chosen_P) - (rejected_P - ref_rejected_P))
    return Preference(loss_P=-F.logsigmoid(margin_P), margin_P=margin_P.detach())
