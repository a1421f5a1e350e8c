"""GiGPO: compares sessions with their siblings, and steps with steps from the same state."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from verl_agentic.credit.advantage import advantage
from verl_agentic.credit.credit.batch import Advantages, CreditBatch
from verl_agentic.credit.credit.group_statistics import group_centred, group_stds
from verl_agentic.credit.credit.step_groups import EPSILON, SessionTurns, StepList, joint_ids, session_advantages


@advantage(needs=("turn_ids_BT", "steps"), compares_siblings=True, discounts={"gamma": "turn"})
def gigpo(
    batch: CreditBatch, *, gamma: float = 0.95, omega: float = 1.0, norm: Literal["mean", "mean_std"] = "mean"
) -> Advantages:
    """Returns `[B, T]`: A_session + omega * A_step.

    A_session is the outcome minus the mean of the group. A_step is G[k] minus its mean over all steps of the group that
    started from the same state, with G[k] = sum over j >= k of gamma^(j - k) * reward of turn j. `mean_std` divides
    both by their sample standard deviation + 1e-6.

    A_step is 0 for a step whose state has no other step; A_session is 0 for a session alone in its group. Every visit
    of a state counts, as in the original: a session that returns to a state is also compared with itself. Turns without
    a step and rows of sub-agents get A_session. Void rows get 0 and do not count.

    Args:
        gamma: discount per turn.
        omega: weight of A_step.

    Paper: https://arxiv.org/abs/2505.10978
    """
    assert batch.steps is not None
    played, steps = SessionTurns.of(batch), StepList.of(batch)
    returns_SK = played.returns_to_go(gamma=gamma)
    turn_N = steps.turn_N.clamp(max=returns_SK.shape[1] - 1)
    values_N = anchored(returns_SK[steps.session_N, turn_N], joint_ids(steps.group_N, steps.state_N), norm=norm)
    nothing_Bk = torch.zeros(played.turns.exists_BK.shape, dtype=values_N.dtype, device=values_N.device)
    step_Bk = steps.to_turns(values_N, steps=batch.steps, turns=played.turns, otherwise_Bk=nothing_Bk)
    session_S = session_advantages(batch, base="dr_grpo" if norm == "mean" else "grpo")
    advantages_BT = played.to_tokens(session_S[batch.session_B].unsqueeze(-1) + omega * step_Bk)
    return Advantages(advantages_BT=advantages_BT, returns_BT=advantages_BT, sessions_S=session_S)


def anchored(returns_N: Tensor, state_N: Tensor, *, norm: Literal["mean", "mean_std"]) -> Tensor:
    """Returns `[N]`: returns of steps minus the mean over all steps from the same state; 0 for a single step.

    Args:
        state_N: `[N]` int64 from 0 without gaps.
        norm: `mean_std` also divides by the standard deviation.
    """
    num_states = int(state_N.max()) + 1 if len(state_N) else 0
    among = {"group_N": state_N, "valid_N": torch.ones_like(state_N, dtype=torch.bool), "num_groups": num_states}
    centred_N = group_centred(returns_N, **among)
    if norm == "mean":
        return centred_N
    return centred_N / (group_stds(returns_N, **among, ddof=1) + EPSILON)
