"""PPO without tokens of extreme ratio."""

from __future__ import annotations

from typing import Literal

import torch

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.metric import Metric
from verl_agentic.credit.aggregate import token_mean
from verl_agentic.credit.losses.ppo import Tensor, log_ratios, ppo_surrogate
from verl_agentic.credit.policy_loss import Loss, LossBatch, policy_loss

METRICS = (
    Metric(name="actor/ratio_masked_frac", unit="share", per="token, mean of micro-batches", rows="sampled tokens"),
)


def band_weights(ratio: Tensor, *, low: float, high: float) -> Tensor:
    """Returns the ratio where `low <= ratio <= high`, else 0 (IcePop); float, any shape."""
    return torch.where((ratio >= low) & (ratio <= high), ratio, 0.0)


@policy_loss()
def ratio_masked(
    batch: LossBatch, *, low: float = 0.5, high: float = 5.0, of: Literal["update", "rollout"] = "update"
) -> Loss:
    """Returns `masked_ppo`, with value and gradient 0 for tokens whose ratio lies outside of `[low, high]`.

    - `of=update`: the ratio `pi / pi_old`. PPO clips only in the direction of the advantage. Here, a token of very low
      ratio and positive advantage has no gradient either.
    - `of=rollout`: the ratio `pi_old / pi_rollout` between trainer and rollout, which also weighs the remaining tokens
      (IcePop). verl does the same with `algorithm.rollout_correction.rollout_is_threshold="0.5_5.0"`, before the
      update. Use one of the two.

    Aggregation still divides by all sampled tokens.

    Args:
        low: minimum ratio; the default is IcePop's.
        high: maximum ratio; the default is IcePop's.

    Raises:
        ConfigError: the band is empty, the ratio unknown, or `of=rollout` lacks rollout log-probs.
    """
    if not 0 <= low < high:
        raise ConfigError(f"ratio_masked needs 0 <= low < high, got low={low}, high={high}")
    surrogate = ppo_surrogate(batch)
    if of == "update":
        ratio_BT = surrogate.ratio_BT.detach()
        weights_BT = (band_weights(ratio_BT, low=low, high=high) > 0).float()
    elif of == "rollout":
        if batch.rollout_log_prob_BT is None:
            raise ConfigError("ratio_masked has of='rollout', but no such log-probs; set rollout.calculate_log_probs")
        ratio_BT = log_ratios(batch.old_log_prob_BT, batch.rollout_log_prob_BT, batch.mask_BT).exp()
        weights_BT = band_weights(ratio_BT, low=low, high=high)
    else:
        raise ConfigError(f"ratio_masked knows the ratios 'update' and 'rollout', got of={of!r}")
    metrics = {**surrogate.metrics, "ratio_masked_frac": token_mean(weights_BT == 0, batch.mask_BT)}
    return Loss(per_token_BT=surrogate.per_token_BT * weights_BT, metrics=metrics)
