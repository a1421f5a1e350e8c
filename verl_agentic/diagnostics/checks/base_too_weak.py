"""Alarm: hardly any task is solved."""

from __future__ import annotations

from verl_agentic.diagnostics.health.alarm import History, alarm
from verl_agentic.diagnostics.thresholds import NEVER_SOLVED, NEVER_SOLVED_ADVICE
from verl_agentic.finding import Finding, warn

_NEVER, _SEEN, _OUTCOME = "curriculum/never_solved_share", "curriculum/seen_share", "episode/acc"


@alarm(reads=(f"{_NEVER}|{_OUTCOME}",), also=(_OUTCOME, _SEEN), patience=5)
def base_too_weak(history: History, *, never_solved: float = NEVER_SOLVED.warn, window: int = 10) -> Finding | None:
    """Hardly any task has ever been solved, so the policy has nothing to learn from.

    Args:
        never_solved: share of the prompts seen that no attempt has solved. Without `agentic.curriculum`, the outcome of
            all episodes must be 0 instead.
        window: steps whose median is compared.
    """
    share, outcome = history.level(_NEVER, window), history.level(_OUTCOME, window)
    if share is not None:
        if share < never_solved:
            return None
        told = f"{share:.0%} of the prompts seen were never solved (limit {never_solved:.0%})"
        evidence = {"never_solved_share": share}
    else:
        best = max(history.first(_OUTCOME, len(history)), default=0.0)
        if outcome is None or best > 0:
            return None
        told, evidence = f"the outcome of all episodes so far is {best:g} (limit: above 0)", {"outcome": best}
    return warn(
        found=f"base too weak: {told}",
        evidence=evidence,
        advice=NEVER_SOLVED_ADVICE,
    )
