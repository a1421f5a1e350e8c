"""ARPO: tokens that branches share get the mean advantage of the branches."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from verl_agentic.credit.advantage import advantage
from verl_agentic.credit.credit.batch import Advantages, CreditBatch
from verl_agentic.credit.credit.step_groups import Base, joint_ids, session_advantages


@advantage(needs=("shared_BT",), compares_siblings=True)
def arpo(batch: CreditBatch, *, mode: Literal["hard", "soft"] = "hard", base: Base = "grpo") -> Advantages:
    """Returns `[B, T]`: the group advantage; in mode `hard`, tokens of a shared prefix get the mean of its branches.

    `hard`: a token with an id in `shared_BT` gets the mean advantage of the rows of its group that sampled the same id
    at the same position. Other tokens get the advantage of their session. `soft`: every copy of a prefix keeps the
    advantage of its own branch. Both modes give the same sum of advantages over all copies, and the same gradients
    while the copies have equal importance ratios.
    Sessions alone in their group and void rows get 0. Rows of sub-agents get the advantage of their session.

    Paper: https://arxiv.org/abs/2507.19849. To our knowledge it trains with `soft`.
    """
    assert batch.shared_BT is not None
    sessions_S = session_advantages(batch, base=base)
    advantages_BT = batch.to_tokens(sessions_S)
    is_shared_BT = (batch.shared_BT >= 0) & batch.mask_BT & batch.valid_B.unsqueeze(-1)
    if mode == "hard":
        shared_BT = {"shared_BT": batch.shared_BT, "is_shared_BT": is_shared_BT}
        advantages_BT = shared_means(advantages_BT, **shared_BT, group_B=batch.group_B)
    return Advantages(advantages_BT=advantages_BT, returns_BT=advantages_BT, sessions_S=sessions_S)


def shared_means(values_BT: Tensor, *, shared_BT: Tensor, is_shared_BT: Tensor, group_B: Tensor) -> Tensor:
    """Replaces values of shared tokens by their mean over the rows of the group that share them.

    Args:
        shared_BT: `[B, T]` int64: rows share a token where they have the same id.
        is_shared_BT: `[B, T]` bool: false where the id is ignored.
    """
    num_rows, num_tokens = values_BT.shape
    # Ids stay the same over long runs of tokens. Sorting runs only keeps this linear in tokens.
    is_start_BT = torch.ones_like(is_shared_BT)
    is_start_BT[:, 1:] = shared_BT[:, 1:] != shared_BT[:, :-1]
    run_BT = (is_start_BT.flatten().cumsum(0) - 1).view(num_rows, num_tokens)
    row_R = is_start_BT.nonzero(as_tuple=True)[0]
    prefix_R = joint_ids(group_B[row_R], shared_BT[is_start_BT])
    row_N, token_N = is_shared_BT.nonzero(as_tuple=True)
    cell_N = prefix_R[run_BT[row_N, token_N]] * num_tokens + token_N
    num_cells = (int(prefix_R.max()) + 1) * num_tokens if len(prefix_R) else 0
    values_N = values_BT[row_N, token_N]
    sums = values_N.new_zeros(num_cells).index_add_(0, cell_N, values_N)
    counts = values_N.new_zeros(num_cells).index_add_(0, cell_N, torch.ones_like(values_N))
    result_BT = values_BT.clone()
    result_BT[row_N, token_N] = (sums / counts.clamp(min=1.0))[cell_N]
    return result_BT
