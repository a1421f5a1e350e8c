"""Alarm: hardly any task is solved."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, judged
from verl_agentic.observe.diagnosis.check import Limit
from verl_agentic.observe.diagnosis.history import History
from verl_agentic.observe.health.alarm import alarm

_SHARE = Limit(warn=0.9, fail=0.95)
_NEVER, _SEEN, _OUTCOME = "curriculum/never_solved_share", "curriculum/seen_share", "episode/acc"


@alarm(reads=(f"{_NEVER}|{_OUTCOME}",), also=(_OUTCOME, _SEEN), patience=5)
def base_too_weak(history: History, *, never_solved: float = _SHARE.warn, window: int = 10) -> Finding | None:
    """Hardly any task has ever been solved, so the policy has nothing to learn from.

    Args:
        never_solved: share of the prompts seen that no attempt has solved. Without `agentic.curriculum`, the outcome of
            all episodes must be 0 instead.
        window: steps whose median is compared.
    """
    share = history.level(_NEVER, window)
    outcomes = history.first(_OUTCOME, len(history))
    if share is not None:
        status, evidence = _SHARE.judge(share, warn=never_solved), {"never_solved_share": share}
        message = f"{share:.0%} of the prompts seen were never solved (limit {never_solved:.0%})"
    elif len(outcomes) >= window:
        best = max(outcomes)
        status, evidence = "ok" if best > 0 else "fail", {"outcome": best}
        message = f"the outcome of all episodes so far is at most {best:g} (limit: above 0)"
    else:
        return None
    return judged(
        status,
        found=message if status == "ok" else f"base too weak: {message}",
        evidence=evidence,
        advice="check that gold answers score (verl-agentic reward audit, verl-agentic env validate); then start from "
        "a model that solves some tasks (SFT), use easier ones, or reward partial success (agentic.rubric.components); "
        "a curriculum only repeats the few solved tasks",
    )
