"""Alarm: a run without a training signal."""

from __future__ import annotations

import statistics

from verl_agentic.base.finding import Finding, warn
from verl_agentic.observe.diagnosis.history import REWARD, History, Row, first_of
from verl_agentic.observe.health.alarm import alarm


def _read_spread(row: Row) -> float | None:
    if "credit/abs_advantage_mean" in row:
        return row["credit/abs_advantage_mean"]
    ends = [row.get(f"critic/advantages/{end}") for end in ("max", "min")]
    return max(abs(end) for end in ends if end is not None) if None not in ends else None


_SIGNALS = {
    "advantages": (
        _read_spread,
        "see zero_signal_groups, and check that rewards differ among siblings (critic/score/min, max)",
    ),
    "gradient": ("actor/grad_norm", "check that advantages reach sampled tokens (verl-agentic dryrun)"),
    "learning rate": ("actor/lr", "raise actor_rollout_ref.actor.optim.lr or trainer.total_training_steps"),
}


@alarm(
    reads=("credit/abs_advantage_mean|critic/advantages/max|actor/grad_norm|actor/lr", "|".join(REWARD)),
    also=("critic/advantages/min",),
    patience=5,
)
def stalled_learning(
    history: History, *, nothing: float = 1e-8, flat: float = 0.02, window: int = 10
) -> Finding | None:
    """Advantages, gradient or learning rate are 0 at every step, and the reward does not change.

    Args:
        nothing: values up to this count as 0.
        flat: maximum difference of the reward's medians in the two halves of the window.
        window: number of steps.
    """
    series = {name: history.last(quantity, window) for name, (quantity, _) in _SIGNALS.items()}
    dead = [name for name, values in series.items() if len(values) == window and max(values) <= nothing]
    rewards = history.last(first_of(*REWARD), window)
    if not dead or len(rewards) < window:
        return None
    half = max(1, window // 2)
    before, now = statistics.median(rewards[:half]), statistics.median(rewards[-half:])
    if abs(now - before) > flat * max(1.0, abs(before)):
        return None
    return warn(
        found=f"{' and '.join(dead)}: 0 for {window} steps, and the reward stays at {now:.3g} (limit: {nothing:g})",
        evidence={"reward": now, **{name: values[-1] for name, values in series.items() if values}},
        advice="; ".join(_SIGNALS[name][1] for name in dead),
    )
