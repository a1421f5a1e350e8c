"""Alarm: the policy does not use its tools."""

from __future__ import annotations

from verl_agentic.diagnostics.health.alarm import REWARD, History, Row, alarm, gain
from verl_agentic.diagnostics.thresholds import TOOL_CALLS_LEFT, TOOL_CALLS_WERE, TOOL_USE_ADVICE, TOOLS_NOT_NEEDED
from verl_agentic.finding import Finding, warn

_OFFERED = "episode/tools_offered"


def _calls(row: Row) -> float | None:
    """Returns calls per episode; for verl's own loops, an estimate from the number of turns."""
    if "episode/tool_calls" in row:
        return row["episode/tool_calls"]
    return max(0.0, (row["num_turns/mean"] - 2) / 2) if "num_turns/mean" in row else None


@alarm(reads=("episode/tool_calls|num_turns/mean",), also=(_OFFERED, *REWARD))
def tool_use_collapse(
    history: History,
    *,
    fallen_to: float = TOOL_CALLS_LEFT.warn,
    was: float = TOOL_CALLS_WERE,
    expected: float = 0.0,
    solved: float = TOOLS_NOT_NEEDED,
    window: int = 5,
) -> Finding | None:
    """Tools are not called any more, were never called, or are called less than expected.

    Args:
        fallen_to: share of the highest level before (the highest median of `window` consecutive steps).
        was: minimum calls per episode before.
        expected: minimum calls per episode; 0: no minimum.
        solved: outcome from which on the tasks need no tools.
        window: steps of the medians.
    """
    now = history.level(_calls, window)
    if now is None:
        return None
    best = history.best(_calls, window)
    has_fallen = best is not None and best >= was and now <= fallen_to * best
    were_never = _were_never_called(history, solved, window)
    if not has_fallen and not were_never and not now < expected:
        return None
    rise = gain(history, window)
    if has_fallen:
        told = f"{best:.2g} at best before, limit {fallen_to:.0%} of that"
    elif were_never:
        told = f"none ever, though {history.level(_OFFERED, window):g} tools are offered"
    else:
        told = f"expected {expected:g}"
    return warn(
        found=f"the policy makes {now:.2g} tool calls per episode ({told}) while the reward "
        + (f"has changed by {rise:+.2g}" if rise is not None else "is unknown"),
        evidence={"tool_calls_now": now, **({"tool_calls_best": best} if best is not None else {})},
        advice=TOOL_USE_ADVICE["never" if were_never and not has_fallen else "fallen"],
        check="fallen" if has_fallen else "never" if were_never else "too_few",
    )


def _were_never_called(history: History, solved: float, window: int) -> bool:
    offered, outcome = history.level(_OFFERED, window), history.level("episode/acc", window)
    if not offered or (outcome is not None and outcome >= solved):
        return False
    return not any(history.first("episode/tool_calls", len(history)))
