"""SPA: every turn is credited with the progress that was attributed to it and to those after it."""

from __future__ import annotations

from typing import Literal

import torch

from verl_agentic.algorithms.advantage import advantage
from verl_agentic.algorithms.advantages.turn_group import compared_by_turn
from verl_agentic.algorithms.credit.batch import CreditBatch
from verl_agentic.algorithms.credit.step_groups import SessionTurns

Tensor = torch.Tensor


@advantage(needs=("turn_ids_BT",), compares_siblings=True, unless={"norm": "none"}, discounts={"gamma": "turn"})
def spa(
    batch: CreditBatch, *, gamma: float = 1.0, norm: Literal["none", "others", "mean", "mean_std"] = "others"
) -> Tensor:
    """Returns `[B, T]`: the fused rewards of a turn and of those after it, against the siblings at the same turn.

    The fused reward of a turn, alpha * contribution + beta * grounded, arrives as the turn's reward: the component
    `progress` of a rubric pays it, or the environment does. An outcome that is paid beside it counts in the last turn.
    With G[k] = sum over j >= k of gamma^(j - k) * reward of turn j, the advantage is G[k] less that of the siblings,
    as `turn_group` has it (also for what becomes of turns and sessions that are alone, of void rows and sub-agents).

    Args:
        batch: see `CreditBatch`.
        gamma: discount a turn.
        norm: as in `turn_group`; `none` takes nothing off: G[k] itself.

    The original trains a critic with PPO on these rewards and pays no outcome beside them; here siblings stand for the
    critic. With a critic, use `turn_gae` on the same rewards.

    Paper: https://arxiv.org/abs/2505.20732
    """
    session_turns = SessionTurns.of(batch)
    returns_SK = session_turns.returns_to_go(gamma=gamma)
    values_SK = returns_SK if norm == "none" else compared_by_turn(returns_SK, session_turns=session_turns, norm=norm)
    return session_turns.to_tokens(session_turns.to_rows(values_SK))
