"""PPO without the tokens whose ratio is extreme."""

from __future__ import annotations

from typing import Literal

import torch

from verl_agentic.algorithms.aggregate import as_floats, token_mean
from verl_agentic.algorithms.losses.ppo import Tensor, log_ratios, ppo_surrogate
from verl_agentic.algorithms.policy_loss import Loss, LossBatch, policy_loss
from verl_agentic.errors import ConfigError


def band_weights(ratio: Tensor, *, low: float, high: float) -> Tensor:
    """Returns the ratio where `low <= ratio <= high`, else 0 (IcePop); float, any shape."""
    return torch.where((ratio >= low) & (ratio <= high), ratio, 0.0)


@policy_loss()
def ratio_masked(
    batch: LossBatch, *, low: float = 0.5, high: float = 5.0, of: Literal["update", "rollout"] = "update"
) -> Loss:
    """Returns `masked_ppo`, with 0 for tokens whose ratio lies outside `[low, high]`: no value and no gradient.

    - `of=update`: the ratio `pi / pi_old` of the step so far. PPO's clip stops only tokens that run ahead; one that
      fell to a thousandth while its advantage is positive keeps its gradient, and here does not.
    - `of=rollout`: the ratio `pi_old / pi_rollout` between trainer and rollout, with which the remaining tokens are
      weighted: IcePop. verl does the same by `algorithm.rollout_correction.rollout_is_threshold="0.5_5.0"`, before
      the update; use one of the two.

    Aggregation still divides by all sampled tokens: what is left out is not made up for by the rest.

    Args:
        low: least ratio, by default IcePop's.
        high: greatest ratio, by default IcePop's.
        of: which ratio.

    Raises:
        ConfigError: an empty band, an unknown ratio, or `of=rollout` without rollout log-probs.
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
    left_out = as_floats({"ratio_masked_frac": token_mean(weights_BT == 0, batch.mask_BT)})
    return Loss(per_token_BT=surrogate.per_token_BT * weights_BT, metrics={**surrogate.metrics, **left_out})
