"""Alarm: truncated episodes."""

from __future__ import annotations

from verl_agentic.diagnostics.health.alarm import History, alarm, total
from verl_agentic.diagnostics.thresholds import TRUNCATED, TRUNCATED_ADVICE
from verl_agentic.finding import Finding, warn

_STOPS = tuple(f"episode/stop/{reason}" for reason in TRUNCATED_ADVICE)
_CLIPPED, _LONGEST = "response_length/clip_ratio", "response_length/max"


@alarm(reads=("episode/stop/max_tokens|response_length/clip_ratio",), also=("episode/stop/context_full", _LONGEST))
def truncation(history: History, *, share: float = TRUNCATED.warn, window: int = 5) -> Finding | None:
    """Many episodes end because tokens ran out.

    Without stop reasons it uses verl's `response_length/clip_ratio`, if the longest response has the same length at
    every step of the window. V1 counts the rows that are as long as the batch's longest, so the ratio alone is useless.

    Args:
        share: share of the episodes.
        window: steps whose median is compared.
    """
    if "episode/stop/max_tokens" in history.names:
        shares = {name: history.level(name, window) or 0.0 for name in _STOPS}
        cut = history.level(total(_STOPS), window)
    else:
        longest = history.last(_LONGEST, window)
        shares = {"episode/stop/max_tokens": history.level(_CLIPPED, window) or 0.0}
        cut = shares["episode/stop/max_tokens"] if len(longest) == window and len(set(longest)) == 1 else None
    if cut is None or cut < share:
        return None
    worst = max(shares, key=lambda name: shares[name]).rpartition("/")[2]
    return warn(
        found=f"{cut:.0%} of the episodes are cut off because tokens ran out (limit {share:.0%}), mostly by {worst}",
        evidence={"cut_share": cut, **shares},
        advice=TRUNCATED_ADVICE[worst],
    )
