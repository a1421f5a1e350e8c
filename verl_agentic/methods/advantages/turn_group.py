"""Compares every turn with the same turn of its siblings; each session counts once.

Axes: B rows, T tokens, S sessions, K turns.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from verl_agentic.credit.advantage import advantage
from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.credit.credit.group_statistics import group_centred, group_counts, group_stds
from verl_agentic.credit.credit.step_groups import EPSILON, SessionTurns

TurnNorm = Literal["others", "mean", "mean_std"]


@advantage(needs=("turn_ids_BT",), compares_siblings=True, discounts={"gamma": "turn"})
def turn_group(batch: CreditBatch, *, gamma: float = 1.0, norm: TurnNorm = "others") -> Tensor:
    """Returns `[B, T]`: a session's return from a turn on, minus that of the siblings that reached this turn.

    With G[i, k] = sum over j >= k of gamma^(j - k) * reward of turn j of session i,

        A[i, k] = G[i, k] - mean of G[m, k] over the siblings m that have a turn k.

    Two more obvious constructions are biased, because the length of a session changes its baseline:

    - A mean over all turns of all sessions counts long sessions more often.
    - A mean of rewards per turn, summed over a session's turns (MT-GRPO), subtracts more from longer sessions, so it
      rewards stopping early (https://github.com/verl-project/verl/issues/7244).

    Here every session counts once at every turn. Whether a session reaches turn k is settled before it acts there, and
    its baseline does not depend on its later actions. So the gradient is unbiased (exactly with `others`). The
    construction is ours.

    A turn that no sibling reached gets the advantage of the last turn that one reached. Void rows and sessions alone in
    their group get 0. The turns of a session of several rows are ordered by turn id.

    Args:
        gamma: discount per turn.
        norm: `others` subtracts the mean of the siblings; `mean` includes the session itself, as GRPO does (scales the
            gradient of a turn with n sessions by 1 - 1 / n); `mean_std` also divides by the standard deviation.

    Paper: https://arxiv.org/abs/2505.11821 (MT-GRPO). Deviations: another formula; every session counts once at every
    turn.
    """
    session_turns = SessionTurns.of(batch)
    values_SK = compared_by_turn(session_turns.returns_to_go(gamma=gamma), session_turns=session_turns, norm=norm)
    return session_turns.to_tokens(session_turns.to_rows(values_SK))


def compared_by_turn(returns_SK: Tensor, *, session_turns: SessionTurns, norm: TurnNorm) -> Tensor:
    """Returns `[S, K]`: returns minus those of siblings at the same turn."""
    batch, (num_sessions, num_turns) = session_turns.batch, returns_SK.shape
    turn_K = torch.arange(num_turns, device=returns_SK.device)
    cell_N = (batch.group_S.unsqueeze(-1) * num_turns + turn_K).flatten()
    values_N, num_cells = returns_SK.flatten(), batch.num_groups * num_turns
    among = {"group_N": cell_N, "valid_N": session_turns.exists_SK.flatten(), "num_groups": num_cells}
    counts_N = group_counts(**among)
    centred_N = group_centred(values_N, **among)
    if norm == "others":
        centred_N = centred_N * counts_N / (counts_N - 1).clamp(min=1.0)
    elif norm == "mean_std":
        centred_N = centred_N / (group_stds(values_N, **among, ddof=1) + EPSILON)
    is_shared_SK = (counts_N > 1).view(num_sessions, num_turns) & session_turns.exists_SK
    last_SK = torch.where(is_shared_SK, turn_K, -1).cummax(dim=1).values
    carried_SK = centred_N.view(num_sessions, num_turns).gather(1, last_SK.clamp(min=0))
    return torch.where(last_SK >= 0, carried_SK, 0.0)
