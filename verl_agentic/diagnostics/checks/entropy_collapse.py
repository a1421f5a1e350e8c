"""Alarm: the policy stops exploring."""

from __future__ import annotations

from verl_agentic.diagnostics.health.alarm import REWARD, History, alarm, first_of, gain, has_learnt
from verl_agentic.diagnostics.thresholds import ENTROPY_ADVICE, ENTROPY_FLOOR, ENTROPY_LEFT, ENTROPY_SOLVED
from verl_agentic.finding import Finding, warn

_ENTROPY = "batch/entropy"


@alarm(reads=(_ENTROPY,), also=REWARD)
def entropy_collapse(
    history: History,
    *,
    fallen_to: float = ENTROPY_LEFT.warn,
    floor: float = ENTROPY_FLOOR,
    solved: float = ENTROPY_SOLVED,
    window: int = 10,
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
    has_fallen = now <= fallen_to * before and rise is not None and not has_learnt(history, window)
    is_gone = now <= floor and outcome is not None and outcome < solved
    if not has_fallen and not is_gone:
        return None
    of_reward = history.level(first_of(*REWARD), window)
    limit = f"{fallen_to:.0%} of the beginning" if has_fallen else f"{floor:g} with an outcome below {solved:g}"
    return warn(
        found=f"the policy's entropy went from {before:.3g} to {now:.3g} (limit {limit}) while the reward "
        + (f"changed by {rise:+.2g}" if rise is not None else "is unknown"),
        evidence={
            "entropy_before": before,
            "entropy_now": now,
            **({"reward_gain": rise} if rise is not None else {}),
            **({"reward_now": of_reward} if of_reward is not None else {}),
        },
        advice=ENTROPY_ADVICE,
        check="collapsed" if has_fallen else "gone",
    )
