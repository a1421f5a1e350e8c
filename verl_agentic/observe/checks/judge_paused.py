"""Alarm: judges have reached their cost cap."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, warn
from verl_agentic.observe.diagnosis.history import History
from verl_agentic.observe.health.alarm import alarm

_PAUSED = "episode/*/judge_paused"


@alarm(reads=(_PAUSED,), patience=1)
def judge_paused(history: History, *, window: int = 1) -> Finding | None:
    """Judges are not asked any more, because they have cost `max_cost`.

    Args:
        window: steps whose median is compared with 0.
    """
    counts = {name.split("/")[1]: history.level(name, window) or 0.0 for name in history.matching(_PAUSED)}
    paused = {name: count for name, count in counts.items() if count > 0}
    if not paused:
        return None
    listed = ", ".join(f"{name} {count:.3g}" for name, count in paused.items())
    return warn(
        found=f"judges have reached max_cost and are paused; paused votes per episode: {listed}",
        evidence=counts,
        advice="raise max_cost of the component to go on, ask a cheaper model, or stop the run: without its judge, a "
        "shaping component abstains, and an outcome is void",
    )
