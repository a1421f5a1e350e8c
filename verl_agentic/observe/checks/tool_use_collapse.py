"""Alarm: the policy does not use its tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_agentic.base.finding import Finding, judged
from verl_agentic.observe.diagnosis.check import Limit
from verl_agentic.observe.diagnosis.history import REWARD, History, Row, gain
from verl_agentic.observe.diagnosis.row_keys import keys_of
from verl_agentic.observe.health.alarm import alarm

if TYPE_CHECKING:
    from verl_agentic.observe.diagnosis.evidence import RunEvidence

_OFFERED = "episode/tools_offered"
_SHARE = Limit(warn=0.1, fail=0.02)
_ADVICE = {
    "never": "check that the policy uses the right format (actor_rollout_ref.rollout.multi_turn.format), that the "
    "prompt offers the tools (verl-agentic preflight), and that answers without tools score less (verl-agentic reward "
    "audit); else warm it up on demonstrations with calls (SFT)",
    "fallen": "check the cost of calls: errors of the tools (episode/tool_errors), penalties in "
    "agentic.rubric.components, budgets (agentic.limits); hold the policy to its start "
    "(actor_rollout_ref.actor.use_kl_loss=true), or reward the outcome only",
}


def _describe_offered_tools(run: RunEvidence) -> tuple[str, tuple[str, ...]]:
    offered = ", ".join(run.offered_tools)
    return f"the prompt offers {offered}" if offered else "", keys_of(run.valid, count=1)


def _count_calls(row: Row) -> float | None:
    """Returns calls per episode; for verl's own loops, an estimate from the number of turns."""
    if "episode/tool_calls" in row:
        return row["episode/tool_calls"]
    return max(0.0, (row["num_turns/mean"] - 2) / 2) if "num_turns/mean" in row else None


@alarm(reads=("episode/tool_calls|num_turns/mean",), also=(_OFFERED, *REWARD), details=_describe_offered_tools)
def tool_use_collapse(
    history: History,
    *,
    fallen_to: float = _SHARE.warn,
    was: float = 0.1,
    expected: float = 0.0,
    solved: float = 0.9,
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
    now = history.level(_count_calls, window)
    if now is None:
        return None
    best = history.best(_count_calls, window)
    rise = gain(history, window)
    status, kind, limit = "ok", "", f"limit {fallen_to:.0%} of the best"
    if best is not None and best >= was and (share := _SHARE.judge(now / best, warn=fallen_to)) != "ok":
        status, kind, limit = share, "fallen", f"{best:.2g} at best before, limit {fallen_to:.0%} of that"
    elif _were_never_called(history, solved, window):
        status, kind = "fail", "never"
        limit = f"none ever, though {history.level(_OFFERED, window):g} tools are offered"
    elif now < expected:
        status, kind, limit = "warn", "too_few", f"expected {expected:g}"
    return judged(
        status,
        found=f"the policy makes {now:.2g} tool calls per episode ({limit}) while the reward "
        + (f"has changed by {rise:+.2g}" if rise is not None else "is unknown"),
        evidence={"tool_calls_now": now, **({"tool_calls_best": best} if best is not None else {})},
        advice=_ADVICE["never" if kind == "never" else "fallen"],
        check=kind,
    )


def _were_never_called(history: History, solved: float, window: int) -> bool:
    offered, outcome = history.level(_OFFERED, window), history.level("episode/acc", window)
    if not offered or (outcome is not None and outcome >= solved):
        return False
    return not any(history.first("episode/tool_calls", len(history)))
