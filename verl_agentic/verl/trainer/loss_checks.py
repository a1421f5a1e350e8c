"""Requirements of policy losses and estimators on the rest of the configuration, for the guard and preflight."""

from __future__ import annotations

from typing import Any

from omegaconf import OmegaConf

from verl_agentic.base.errors import ConfigError
from verl_agentic.credit.advantage import columns_of_advantage
from verl_agentic.credit.policy_loss import is_policy_loss, load_policy_loss, needs_of_loss
from verl_agentic.verl.sections import AGENTIC

_ACTOR = "actor_rollout_ref.actor"
_LOSS, _PER_SESSION = f"{_ACTOR}.policy_loss.loss_mode", f"{_ACTOR}.policy_loss.per_session"
_VERLS_SUM_PI_SQUARED = {"optimal_token_baseline", "tir_optimal_token_baseline"}


def is_greedy(estimator: str) -> bool:
    """Returns whether an estimator needs a greedy session."""
    return estimator == "remax" or "baseline_B" in columns_of_advantage(estimator)


def takes_sum_pi_squared(estimator: str) -> bool:
    """Returns whether an estimator needs the sums of squared probabilities."""
    return estimator in _VERLS_SUM_PI_SQUARED or "sum_pi_squared_BT" in columns_of_advantage(estimator)


def check_inputs_of_loss(config: Any) -> None:
    """Refuses a loss that would lack entropies or external sessions. Raises ConfigError."""
    loss = str(OmegaConf.select(config, _LOSS))
    needs = needs_of_loss(loss)
    has_entropy = OmegaConf.select(config, f"{_ACTOR}.calculate_entropy")
    if "entropy_BT" in needs and not has_entropy and not OmegaConf.select(config, f"{_ACTOR}.entropy_coeff"):
        raise ConfigError(
            f"the loss {loss} needs entropies, got {_ACTOR}.calculate_entropy={has_entropy}; set it to true"
        )
    if "is_external_B" in needs and not OmegaConf.select(config, f"{AGENTIC}.external_sessions"):
        raise ConfigError(
            f"the loss {loss} learns from sessions of the environment's solution, but there are none; set "
            "agentic.external_sessions"
        )


def check_our_trainer(config: Any) -> None:
    """Refuses settings under which a trainer of ours computes other numbers than it should. Raises ConfigError."""
    name, loss = (str(OmegaConf.select(config, key)) for key in ("algorithm.adv_estimator", _LOSS))
    strategy = OmegaConf.select(config, f"{_ACTOR}.strategy")
    needs_means = "mean_log_ratio_BT" in needs_of_loss(loss)
    asked = {key: OmegaConf.select(config, key) for key in ("algorithm.length_lr", "algorithm.linear_lr")}
    asked |= {f"the loss {loss}": needs_means}
    for what, is_asked in asked.items():
        if is_asked and strategy not in ("fsdp", "fsdp2"):
            raise ConfigError(f"{what} works with actor.strategy fsdp and fsdp2, got {strategy!r}; unset it")
    if (takes_sum_pi_squared(name) or needs_means) and OmegaConf.select(
        config, "algorithm.rollout_correction.bypass_mode"
    ):
        what = f"the loss {loss}" if needs_means else f"estimator {name!r}"
        raise ConfigError(
            f"{what} needs what the trainer computes with the log-probs of the old policy, got "
            "algorithm.rollout_correction.bypass_mode=true, which computes none; set it to false"
        )
    is_bound = is_policy_loss(loss) and load_policy_loss(loss).only_token_mean
    aggregation = OmegaConf.select(config, f"{_ACTOR}.loss_agg_mode") or "token-mean"
    if is_bound and aggregation != "token-mean":
        raise ConfigError(
            f"the loss {loss} divides by tokens of the whole batch, which only token-mean leaves as it is, got "
            f"actor_rollout_ref.actor.loss_agg_mode={aggregation}; set it to token-mean"
        )
    if is_bound and OmegaConf.select(config, _PER_SESSION):
        raise ConfigError(f"the loss {loss} divides by tokens of the batch, got {_PER_SESSION}=true; set it to false")
    if loss == "geo_mean" and OmegaConf.select(config, _PER_SESSION):
        raise ConfigError(
            f"verl's loss geo_mean takes the mean over rows and ignores session weights, got {_PER_SESSION}=true; set "
            "it to false or choose another loss"
        )
    if is_greedy(name) and OmegaConf.select(config, "algorithm.filter_groups.enable"):
        raise ConfigError(
            f"verl's filter of groups would judge the greedy sessions of estimator {name!r}, too, got "
            "algorithm.filter_groups.enable=true; set it to false and trainer.v1.sampler.custom_sampler to "
            "GatedReplayBuffer of pkg://verl_agentic.verl.replay_buffer.gated_buffer"
        )
