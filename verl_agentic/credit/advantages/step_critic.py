"""Turn-level GAE with a critic that is trained only where steps end."""

from __future__ import annotations

from verl_agentic.credit.advantage import advantage
from verl_agentic.credit.advantages.turn_gae import gae_of_turns
from verl_agentic.credit.credit.batch import Advantages, CreditBatch


@advantage(needs=("turn_ids_BT", "values_BT"), discounts={"gamma": "turn"})
def step_critic(batch: CreditBatch, *, gamma: float = 0.99, lam: float = 0.95, whiten: bool = True) -> Advantages:
    """Returns the advantages of `turn_gae`, and critic targets only at the ends of steps.

    A step is a turn and the observation that follows. It ends in the state in which the next turn begins, whose value
    is read at the first sampled token of the next turn. The critic is trained and measured
    (`credit/explained_variance`) only there. So a row of 4,000 tokens and 5 turns trains it at 5 places.

    At other sampled tokens the target is the critic's own value. verl's token-mean still divides by all tokens, so the
    effective learning rate of the critic is `turns / tokens` times the configured one. Set a smaller critic in verl's
    `critic.model`.

    Args:
        gamma: discount per turn.
        lam: 0: one-step errors; 1: returns minus values.
        whiten: over the sampled tokens of the batch, as verl's `gae`.

    No paper: our reading of a "lightweight step-level critic"; the defaults are ours.
    """
    return gae_of_turns(batch, gamma=gamma, lam=lam, whiten=whiten, trains_at="first_token")
