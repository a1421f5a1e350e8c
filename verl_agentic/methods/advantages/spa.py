"""SPA: credits each turn with the progress of that turn and later turns."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from verl_agentic.credit.advantage import advantage
from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.credit.credit.step_groups import SessionTurns
from verl_agentic.methods.advantages.turn_group import compared_by_turn


@advantage(needs=("turn_ids_BT",), compares_siblings=True, unless={"norm": "none"}, discounts={"gamma": "turn"})
def spa(
    batch: CreditBatch, *, gamma: float = 1.0, norm: Literal["none", "others", "mean", "mean_std"] = "others"
) -> Tensor:
    """Returns `[B, T]`: discounted fused rewards from a turn on, minus the siblings' mean at the same turn.

    The fused reward of a turn, alpha * contribution + beta * grounded, arrives as the turn's reward, from the component
    `progress` of a rubric or from the environment. An additional outcome counts in the last turn. With G[k] = sum over
    j >= k of gamma^(j - k) * reward of turn j, the advantage is G[k] minus that of the siblings, as in `turn_group`
    (which also defines singletons, void rows and sub-agents).

    Args:
        gamma: discount per turn.
        norm: as in `turn_group`; `none` gives G[k] itself.

    Deviations: the original trains a critic with PPO on these rewards and adds no outcome. Here siblings replace the
    critic. With a critic, use `turn_gae` on the same rewards.

    Paper: https://arxiv.org/abs/2505.20732
    """
    session_turns = SessionTurns.of(batch)
    returns_SK = session_turns.returns_to_go(gamma=gamma)
    values_SK = returns_SK if norm == "none" else compared_by_turn(returns_SK, session_turns=session_turns, norm=norm)
    return session_turns.to_tokens(session_turns.to_rows(values_SK))
