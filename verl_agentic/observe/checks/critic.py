"""Alarm: the critic predicts no better than a constant."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, warn
from verl_agentic.observe.diagnosis.history import History, first_of
from verl_agentic.observe.health.alarm import alarm

_EXPLAINED = first_of("credit/explained_variance", "critic/vf_explained_var")


@alarm(reads=("credit/explained_variance|critic/vf_explained_var",), patience=5)
def critic(history: History, *, least: float = 0.0, warmup: int = 20, window: int = 10) -> Finding | None:
    """The critic explains no more of the returns' variance than a constant.

    Args:
        least: minimum explained variance, 1 - Var(returns - values) / Var(returns).
        warmup: steps without an alarm at the beginning.
        window: steps whose median is compared.
    """
    now = history.level(_EXPLAINED, window)
    if now is None or len(history.first(_EXPLAINED, warmup + window)) < warmup + window or now > least:
        return None
    return warn(
        found=f"the critic explains {now:.2f} of the returns' variance (limit {least:g}): it is no better than a "
        "constant baseline",
        evidence={"explained_variance": now},
        advice="warm it up (trainer.critic_warmup), raise critic.optim.lr or critic.ppo_epochs, see that "
        "critic.model.path is a model of the policy's family; or an estimator without critic (algorithm.adv_estimator)",
    )
