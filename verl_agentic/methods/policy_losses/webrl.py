"""WebRL: regresses the log-ratio of a turn to the reference on its advantage."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.metric import Metric
from verl_agentic.credit.aggregate import Tensor, masked, token_mean
from verl_agentic.credit.losses.ppo import log_ratios
from verl_agentic.credit.policy_loss import Loss, LossBatch, policy_loss

METRICS = (
    Metric(name="actor/webrl_q", unit="reward", per="turn, mean of micro-batches", rows="turns with sampled tokens"),
)


@policy_loss(needs=("ref_log_prob_BT", "turn_ids_BT"))
def webrl(batch: LossBatch, *, beta: float = 0.1) -> Loss:
    """Returns `mean_k (beta log(pi(a_k) / pi_ref(a_k)) - A_k)^2` per row, over the turns k of the row.

    `log pi(a_k)` is the sum over the sampled tokens of the turn, and A_k the mean of their advantages: use an estimator
    of turns. The minimum is the policy `pi_ref exp(A / beta)` that a KL term of weight beta has, whichever policy
    sampled the turn. So replayed rows need no importance weights, and nothing is clipped. Rows without sampled tokens
    have loss 0. `actor.loss_agg_mode` has no effect.

    Deviations: the authors' code has another form. It drops turns with a negative advantage and replaces the others by
    1. It divides the log-ratio by the number of tokens, and its distance is a smooth L1. Its beta is 1, and 5 for turns
    that the reference finds likely.

    Args:
        beta: weight of the KL to the reference, above 0; the default is ours, as the paper does not publish it.

    Raises:
        ConfigError: `beta` is not positive.

    Paper: https://arxiv.org/abs/2411.02337 (section 2.2)
    """
    if beta <= 0:
        raise ConfigError(f"webrl needs a positive beta, got {beta}")
    mask_BT = batch.mask_BT
    # The number of a turn in its row is at most its first position, so T places are enough.
    changes_BT = cast("Tensor", batch.turn_ids_BT).diff(dim=-1) != 0
    place_BT = F.pad(changes_BT.long(), (1, 0)).cumsum(dim=-1)

    def sum_turns(values_BT: Tensor) -> Tensor:
        return torch.zeros_like(values_BT).scatter_add(1, place_BT, values_BT)

    count_BK = sum_turns(mask_BT.float())
    exists_BK = count_BK > 0
    q_BK = beta * sum_turns(log_ratios(batch.log_prob_BT, cast("Tensor", batch.ref_log_prob_BT), mask_BT))
    advantage_BK = sum_turns(masked(batch.advantages_BT, mask_BT)) / count_BK.clamp(min=1)
    squares_BK = masked((q_BK - advantage_BK).square(), exists_BK)
    loss_B = squares_BK.sum(dim=-1) / exists_BK.sum(dim=-1).clamp(min=1)
    return Loss(per_row_B=loss_B, metrics={"webrl_q": token_mean(q_BK, exists_BK)})
