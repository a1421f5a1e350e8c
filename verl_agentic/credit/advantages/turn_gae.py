"""GAE in which a step is a turn."""

from __future__ import annotations

from typing import Literal

from verl_agentic.credit.advantage import advantage
from verl_agentic.credit.credit.batch import Advantages, CreditBatch
from verl_agentic.credit.credit.explained_variance import critic_metrics
from verl_agentic.credit.credit.gae import critic_targets, gae, whitened
from verl_agentic.credit.credit.turn_states import TurnStates


@advantage(needs=("turn_ids_BT", "values_BT"), discounts={"gamma": "turn"})
def turn_gae(batch: CreditBatch, *, gamma: float = 0.99, lam: float = 0.95, whiten: bool = True) -> Advantages:
    """Returns generalised advantages of turns, the same on every sampled token of a turn.

    `A[k] = r[k] + gamma * V(s[k+1]) - V(s[k]) + gamma * lam * A[k+1]`, where r[k] is the sum of turn k's rewards, and
    `V(s[k])` the critic's value at the turn's first sampled token. The value after the last turn is 0. The lengths of
    turns and observations do not affect discounting.

    - A session of several rows is one chain of turns.
    - The critic is trained towards `A[k] + V(s[k])` on every sampled token of the turn. `step_critic` trains it at
      first tokens only.
    - Void rows get 0 and do not train the critic. Groups are not used.

    Args:
        gamma: discount per turn.
        lam: 0: one-step errors; 1: returns minus values.
        whiten: over the sampled tokens of the batch, as verl's `gae`.

    Paper: https://arxiv.org/abs/1506.02438. Deviations: a step is a turn. The defaults are common advice, not a
    paper's.
    """
    return gae_of_turns(batch, gamma=gamma, lam=lam, whiten=whiten, trains_at="every_token")


def gae_of_turns(
    batch: CreditBatch, *, gamma: float, lam: float, whiten: bool, trains_at: Literal["every_token", "first_token"]
) -> Advantages:
    """Returns advantages of turns on all of their sampled tokens, and critic targets; see `turn_gae`.

    Args:
        trains_at: tokens of a turn with a target. Other tokens are trained towards the critic's own value.
    """
    assert batch.values_BT is not None
    states = TurnStates.of(batch)
    values_BK = states.at_first(batch.values_BT)
    discounting = {"next_B": states.next_B, "gamma": gamma}
    advantages_BK = gae(states.rewards_BK, values_BK, states.exists_BK, lam=lam, **discounting)
    advantages_BT, sampled_BT = states.to_tokens(advantages_BK), states.turns.mask_BT
    trained_BT = sampled_BT if trains_at == "every_token" else states.is_first()
    return Advantages(
        advantages_BT=whitened(advantages_BT, sampled_BT) if whiten else advantages_BT,
        returns_BT=critic_targets(batch, states.to_tokens(advantages_BK + values_BK), trained_BT),
        metrics=critic_metrics(batch, values_BK, states.rewards_BK, states.exists_BK, **discounting),
    )
