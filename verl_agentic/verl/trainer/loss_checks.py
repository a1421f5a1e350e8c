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


def check_old_log_probs(config: Any, *, feature: str) -> None:
    """Refuses a mode in which the trainer computes no old log-probs. Raises ConfigError."""
    if OmegaConf.select(config, "algorithm.rollout_correction.bypass_mode"):
        raise ConfigError(
            f"{feature} needs what the trainer computes with the log-probs of the old policy, got "
            "algorithm.rollout_correction.bypass_mode=true, which computes none; set it to false"
        )


def check_our_trainer(config: Any) -> None:
    """Refuses settings under which a trainer of ours computes other numbers than it should. Raises ConfigError."""
    name, loss = (str(OmegaConf.select(config, key)) for key in ("algorithm.adv_estimator", _LOSS))
    if takes_sum_pi_squared(name):
        check_old_log_probs(config, feature=f"estimator {name!r}")
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
