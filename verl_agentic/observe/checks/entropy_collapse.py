"""Alarm: the policy stops exploring."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, judged
from verl_agentic.observe.diagnosis.check import Limit
from verl_agentic.observe.diagnosis.history import REWARD, History, first_of, gain, has_learnt
from verl_agentic.observe.health.alarm import alarm

_ENTROPY = "batch/entropy"
_SHARE = Limit(warn=0.3, fail=0.1)


@alarm(reads=(_ENTROPY,), also=REWARD)
def entropy_collapse(
    history: History, *, fallen_to: float = _SHARE.warn, floor: float = 0.005, solved: float = 0.95, window: int = 10
) -> Finding | None:
    """The entropy of the policy has fallen without a higher reward, or hardly any entropy is left.

    Entropy falls in every run that learns. It is a collapse if the reward has not risen by 0.05 (or 5 % of its size),
    or if siblings become alike before the tasks are solved.

    Args:
        fallen_to: share of the entropy in the first window.
        floor: nats per token; at 0.005 nearly every token has a probability of 99.9 %.
        solved: outcome from which on low entropy is fine, if the raw outcome is known.
        window: steps of the medians at either end.
    """
    before, now = history.start(_ENTROPY, window), history.level(_ENTROPY, window)
    if before is None or now is None:
        return None
    rise, outcome = gain(history, window), history.level("episode/acc", window)
    status = _SHARE.judge(now / before, warn=fallen_to) if before > 0 else "ok"
    has_fallen = status != "ok" and rise is not None and not has_learnt(history, window)
    is_gone = now <= floor and outcome is not None and outcome < solved
    if not has_fallen:
        status = "warn" if is_gone else "ok"
    of_reward = history.level(first_of(*REWARD), window)
    limit = f"{fallen_to:.0%} of the beginning"
    if is_gone and not has_fallen:
        limit = f"{floor:g} with an outcome below {solved:g}"
    return judged(
        status,
        found=f"the policy's entropy went from {before:.3g} to {now:.3g} (limit {limit}) while the reward "
        + (f"changed by {rise:+.2g}" if rise is not None else "is unknown"),
        evidence={
            "entropy_before": before,
            "entropy_now": now,
            **({"reward_gain": rise} if rise is not None else {}),
            **({"reward_now": of_reward} if of_reward is not None else {}),
        },
        advice="clip higher (actor_rollout_ref.actor.clip_ratio_high=0.28), reward entropy "
        "(actor_rollout_ref.actor.entropy_coeff=0.001), hold the policy (actor_rollout_ref.actor.use_kl_loss=true), "
        "raise actor_rollout_ref.rollout.temperature towards 1, or lower actor_rollout_ref.actor.optim.lr; go back to "
        "a checkpoint from before that step",
        check="collapsed" if has_fallen else "gone",
    )
