"""Alarm: infrastructure failures."""

from __future__ import annotations

from verl_agentic.diagnostics.health.alarm import History, alarm, first_of
from verl_agentic.diagnostics.thresholds import VOID, void_advice
from verl_agentic.finding import Finding, warn

_VOID = first_of("episode/void", "credit/void_session_frac", "batch/void_session_frac")


@alarm(
    reads=("episode/void|credit/void_session_frac|batch/void_session_frac",),
    also=("episode/error/*", "episode/stop/timeout", "episode/retries"),
)
def infra_errors(history: History, *, void: float = VOID.warn, retries: float = 0.5, window: int = 5) -> Finding | None:
    """Many episodes are void or retried: environment, sandbox, server or scorer fail, or time runs out.

    Args:
        void: share of episodes. Slow and hard tasks are void more often, so that the remaining episodes are biased.
        retries: per episode.
        window: steps whose median is compared.
    """
    share, again = history.level(_VOID, window), history.level("episode/retries", window)
    share = share or 0.0
    is_void = share >= void
    if not is_void and (again is None or again < retries):
        return None
    kinds = {name: history.level(name, window) or 0.0 for name in history.matching("episode/error/*")}
    kinds["episode/stop/timeout"] = history.level("episode/stop/timeout", window) or 0.0
    listed = ", ".join(f"{name.split('/', 1)[1]} {value:.1%}" for name, value in kinds.items() if value) or "not known"
    told = f"{share:.1%} of the episodes are void (limit {void:.0%})" if is_void else f"{again:.2g} retries per episode"
    told += "" if is_void else f" (limit {retries:g})"
    return warn(
        found=f"{told}; by cause: {listed}",
        evidence={"void_share": share, "retries": again or 0.0, **kinds},
        advice=void_advice(kinds),
    )
