"""Every turn against the same turn of its siblings, one vote a session.

Axes: B rows, T tokens, S sessions, K turns.
"""

from __future__ import annotations

from typing import Literal

import torch

from verl_agentic.algorithms.advantage import advantage
from verl_agentic.algorithms.credit.batch import CreditBatch
from verl_agentic.algorithms.credit.group_statistics import group_centred, group_counts, group_stds
from verl_agentic.algorithms.credit.step_groups import EPSILON, SessionTurns
from verl_agentic.errors import ConfigError

Tensor = torch.Tensor
TurnNorm = Literal["others", "mean", "mean_std"]


@advantage(needs=("turn_ids_BT",), compares_siblings=True, discounts={"gamma": "turn"})
def turn_group(batch: CreditBatch, *, gamma: float = 1.0, norm: TurnNorm = "others") -> Tensor:
    """Returns `[B, T]`: what a session earned from a turn on, less what its siblings did that played this turn as well.

    With G[i, k] = sum over j >= k of gamma^(j - k) * reward of turn j of session i,

        A[i, k] = G[i, k] - mean of G[m, k] over the siblings m that have a turn k.

    Two constructions that lie nearer are biased, since there how long a session is changes what is taken off it:

    - A mean over all turns of all sessions gives long sessions more votes.
    - A mean of rewards for each turn, summed over the turns that a session has (MT-GRPO), takes more off longer
      sessions; it pays for stopping early (https://github.com/verl-project/verl/issues/7244).

    Here every session has one vote at every turn. Whether it has a turn k is settled before it acts there, and what is
    taken off does not depend on what it does from there on, so the gradient is unbiased (exactly with `others`).
    This construction is ours; the issue offers one that we could not read.

    A turn that no sibling has gets the advantage of the session's last turn that one had (unbiased for the same
    reason); a session alone in its group gets 0. Void rows neither count nor learn. Several rows of a session are its
    turns one after the other, by turn id.

    Args:
        batch: see `CreditBatch`.
        gamma: discount a turn.
        norm: what is taken off: the mean of the `others`; the `mean` with the session itself, as GRPO does it (scales
            the gradient of a turn that n sessions have by 1 - 1 / n); `mean_std` divides by the standard deviation too.

    Paper: https://arxiv.org/abs/2505.11821 (MT-GRPO). Deviations: not its formula; every session has
    one vote at every turn.
    """
    session_turns = SessionTurns.of(batch)
    values_SK = compared_by_turn(session_turns.returns_to_go(gamma=gamma), session_turns=session_turns, norm=norm)
    return session_turns.to_tokens(session_turns.to_rows(values_SK))


def compared_by_turn(returns_SK: Tensor, *, session_turns: SessionTurns, norm: TurnNorm) -> Tensor:
    """Returns `[S, K]`: returns against those of the siblings at the same turn; see `turn_group`.

    Args:
        returns_SK: `[S, K]` float.
        session_turns: which sessions have which turns.
        norm: see `turn_group`.

    Raises:
        ConfigError: another norm.
    """
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
    elif norm != "mean":
        raise ConfigError(f"unknown norm of turns, got {norm!r}; use 'others', 'mean' or 'mean_std'")
    is_shared_SK = (counts_N > 1).view(num_sessions, num_turns) & session_turns.exists_SK
    last_SK = torch.where(is_shared_SK, turn_K, -1).cummax(dim=1).values
    carried_SK = centred_N.view(num_sessions, num_turns).gather(1, last_SK.clamp(min=0))
    return torch.where(last_SK >= 0, carried_SK, 0.0)
