"""Checks of methods that change the rewards of tokens before an estimator gets them."""

from __future__ import annotations

from typing import Any

from omegaconf import OmegaConf

from verl_agentic.base.errors import ConfigError
from verl_agentic.credit.advantage import is_advantage, load_advantage
from verl_agentic.credit.policy_loss import is_policy_loss, load_policy_loss

_VERLS_WITHOUT = {"gdpo", "remax"}
_WITHOUT = {"parts", "baseline_B"}
"""Columns of estimators that ignore token rewards."""


def check_readers(config: Any, *, section: str) -> None:
    """Raises ConfigError if the estimator or the loss of a run ignores the rewards of tokens."""
    estimator = str(config.algorithm.adv_estimator)
    is_ours = is_advantage(estimator)
    if estimator in _VERLS_WITHOUT or (is_ours and load_advantage(estimator).needs & _WITHOUT):
        raise ConfigError(
            f"{section} changes rewards of tokens, got estimator {estimator!r}, which looks at parts of the reward or "
            "at greedy sessions, where they are not; take another one"
        )
    loss = str(OmegaConf.select(config, "actor_rollout_ref.actor.policy_loss.loss_mode"))
    if is_policy_loss(loss) and not load_policy_loss(loss).uses_advantages:
        raise ConfigError(
            f"{section} changes advantages, got policy_loss.loss_mode={loss!r}, which does not look at them; take "
            "another one"
        )
