"""Returns of turns from subgoals and outcome, minus the siblings' mean at the same turn."""

from __future__ import annotations

import torch
from torch import Tensor

from verl_agentic.credit.advantage import advantage
from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.credit.credit.gae import returns_to_go, sums_before
from verl_agentic.credit.credit.group_statistics import group_means
from verl_agentic.credit.credit.turn_states import TurnStates


@advantage(needs=("turn_ids_BT",), compares_siblings=True, discounts={"gamma": "turn"})
def hierarchical(batch: CreditBatch, *, gamma: float = 1.0) -> Tensor:
    """Returns `G[k] - b[k]` on every sampled token of a session's k-th turn, not scaled.

    `G[k] = r[k] + gamma * G[k+1]` over the turns of all rows of the session. A reached subgoal counts for its turn and
    earlier turns; the outcome, on the last turn, counts for all. `b[k]` is the mean of G[k] over the sessions of the
    group that have a k-th turn, each counted once. If only one session has a k-th turn, its baseline is that of the
    last turn that two sessions have. So a session gains nothing by going on longer than its siblings.

    Void rows and sessions alone in their group get 0. Turn rewards come from the rubric or the environment, on any
    token of a turn.

    Args:
        gamma: discount per turn.

    No paper: our reading of "hierarchical rewards" of subgoals and outcome.
    """
    states = TurnStates.of(batch)
    exists_BK = states.exists_BK
    returns_BK = returns_to_go(states.rewards_BK, exists_BK, next_B=states.next_B, gamma=gamma)
    turn_BK = exists_BK.long().cumsum(dim=1) - 1 + sums_before(exists_BK.sum(dim=1), states.next_B).unsqueeze(1)
    num_turns = int(torch.where(exists_BK, turn_BK, 0).max()) + 1 if exists_BK.numel() else 1
    place_BK = batch.group_B.unsqueeze(1) * num_turns + turn_BK.clamp(min=0)
    count_GK = _sum_cells(exists_BK.double(), place_BK, batch.num_groups, num_turns)
    mean_GK = torch.zeros_like(count_GK)
    cells = {"group_N": place_BK.flatten(), "valid_N": exists_BK.flatten(), "num_groups": mean_GK.numel()}
    mean_GK.view(-1)[cells["group_N"]] = group_means(returns_BK.flatten(), **cells)
    # Sessions have all turns up to their last one, so the turns that two sessions have come first.
    last_shared_G = (count_GK >= 2.0).sum(dim=1) - 1
    last_BK = last_shared_G[batch.group_B].unsqueeze(1)
    baseline_BK = mean_GK[batch.group_B.unsqueeze(1), torch.minimum(turn_BK, last_BK).clamp(min=0)]
    advantages_BK = torch.where(exists_BK & (last_BK >= 0), returns_BK - baseline_BK, 0.0)
    return states.to_tokens(advantages_BK.float())


def _sum_cells(values_BK: Tensor, place_BK: Tensor, num_groups: int, num_turns: int) -> Tensor:
    sums = torch.zeros(num_groups * num_turns, dtype=values_BK.dtype, device=values_BK.device)
    return sums.index_add_(0, place_BK.flatten(), values_BK.flatten()).reshape(num_groups, num_turns)
