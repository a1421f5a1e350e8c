"""Turn-level GAE with a critic that is trained where steps end, and nowhere else."""

from __future__ import annotations

from verl_agentic.algorithms.advantage import advantage
from verl_agentic.algorithms.advantages.turn_gae import gae_of_turns
from verl_agentic.algorithms.credit.batch import Advantages, CreditBatch


@advantage(needs=("turn_ids_BT", "values_BT"), discounts={"gamma": "turn"})
def step_critic(batch: CreditBatch, *, gamma: float = 0.99, lam: float = 0.95, whiten: bool = True) -> Advantages:
    """Returns the advantages of `turn_gae`, and targets for the critic at the ends of steps alone.

    A step is a turn and the observation that answers it; it ends in the state in which the next turn begins, whose
    value is that at the first sampled token of the next turn (and before the first turn, the prompt's). Only there the
    critic is asked, trained and measured (`credit/explained_variance`): a row of 4,000 tokens and 5 turns trains it at
    5 places, each with a target of its own, not at 4,000 that share 5.

    At other sampled tokens the target is the critic's own value, so nothing is learnt there; but verl's token-mean
    still divides by all of them, so that the critic's learning rate acts as if it were `turns / tokens` of what is set.
    verl computes values at all tokens in one pass of the critic; a smaller head or model is set in verl's
    `critic.model`.

    Args:
        batch: needs turn ids and values.
        gamma: discount per turn.
        lam: 0: one-step errors; 1: returns less values.
        whiten: over the sampled tokens of the batch, as verl's `gae`.

    No paper: our reading of a "lightweight step-level critic"; the defaults are ours.
    """
    return gae_of_turns(batch, gamma=gamma, lam=lam, whiten=whiten, trains_at="first_token")
