"""Alarm: a judge gives other values than at the beginning."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, warn
from verl_agentic.observe.diagnosis.history import History
from verl_agentic.observe.health.alarm import alarm

_CHANGE, _SHIFT, _NO_VALUE = "judge_drift/change", "judge_drift/shift", "judge_drift/no_value"


@alarm(reads=(_CHANGE,), also=(_SHIFT, _NO_VALUE), patience=1)
def judge_drift(history: History, *, change: float = 0.1, window: int = 1) -> Finding | None:
    """A judge gives the samples of `agentic.health.judge_drift` other values than at the beginning.

    Args:
        change: mean absolute change of the value, of 1. A judge with a temperature changes its values without a drift:
            set it above that noise.
        window: measurements whose median is compared.
    """
    moved, shift = history.level(_CHANGE, window), history.level(_SHIFT, window) or 0.0
    if moved is None or moved < change:
        return None
    return warn(
        found=f"the judge gives the same work other values than at the beginning: by {moved:.2g} on average (limit "
        f"{change:g}), {shift:+.2g} in sum of both directions",
        evidence={"change": moved, "shift": shift, "no_value": history.level(_NO_VALUE, window) or 0.0},
        advice="rewards before and after are not comparable: see whether the judge's server has another model or "
        "version, pin it, and run verl-agentic judge probe; resume from the last healthy checkpoint",
    )
