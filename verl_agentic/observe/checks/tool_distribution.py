"""Check: calls by tool, and their errors."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from verl_agentic.base.finding import Finding, judged, unknown
from verl_agentic.observe.diagnosis.check import Limit, record_check
from verl_agentic.observe.diagnosis.row_keys import calls_of, key_of
from verl_agentic.observe.diagnosis.series import ends, recent_mean

if TYPE_CHECKING:
    from verl_agentic.observe.diagnosis.evidence import RunEvidence

_CALLS_FAIL = Limit(warn=0.5, fail=0.95)
"""Share of calls that fail."""
_SOLVED = 0.9
"""Outcome from which on failing calls are only a warning."""
_RESULT_CHARS = 100
_ONE_SIDED = 0.95
_UNREADABLE = "(unreadable)"
_BY_TOOL = ("tool", "tool_raised", "tool_timeout", "no_answer")
_TOOL_ADVICE = (
    "call the tool by hand: run the environment's solution (verl-agentic env validate), check its sandbox, server and "
    "data (verl-agentic doctor) and its timeout_s"
)
_ERROR_ADVICE = (
    "see episode/call_error/*: for malformed calls, use SFT or agentic.protocol_options; compare the arguments with "
    "the tool's schema in the prompt"
)


@record_check
def tool_distribution(run: RunEvidence) -> Finding:
    """Returns the calls by tool, and whether most of them fail or go to one tool."""
    calls = Counter(call["name"] or _UNREADABLE for _, call in calls_of(run.sample))
    offered, series = run.offered_tools, run.series("episode/tool_calls")
    if not series and not len(run.rows):
        return unknown("there are neither trajectories nor episode/tool_calls")
    evidence: dict[str, Any] = {"calls": dict(calls), "offered": offered}
    if (failing := _judge_failing_calls(run, calls, evidence)) is not None:
        return failing
    if not calls:
        is_missing = not offered and run.setting("actor_rollout_ref.rollout.multi_turn.tool_config_path")
        return judged(
            "warn" if is_missing and not any(value for _, value in series) else "ok",
            found=f"{recent_mean(series) if series else 0.0:.3g} calls per episode; single calls are unknown",
            advice="the prompt shows no tools, though tool_config_path names some: see `verl-agentic preflight`",
            evidence=evidence,
        )
    share, entropy = spread(calls, num_tools=len(offered) or len(calls))
    return judged(
        "warn" if len(offered) > 1 and share > _ONE_SIDED else "ok",
        found=f"{_list_counts(calls)}; top share {share:.0%}, entropy {entropy:.2f} of 1",
        advice=f"only one of {sorted(offered)} is used: check that prompt and data need the others",
        evidence={**evidence, "top_share": share, "entropy": entropy},
    )


def spread(calls: Mapping[str, int], *, num_tools: int) -> tuple[float, float]:
    """Returns the share of the most used tool, and the entropy of calls divided by the maximum for `num_tools`.

    The entropy is 0 where there is one tool only.
    """
    total = sum(calls.values())
    shares = [count / total for count in calls.values() if count]
    entropy = -sum(share * math.log(share) for share in shares)
    return max(shares), entropy / math.log(num_tools) if num_tools > 1 else 0.0


def _judge_failing_calls(run: RunEvidence, calls: Counter[str], evidence: Mapping[str, Any]) -> Finding | None:
    """Returns calls that fail, with the most frequent result, and whether the policy or the tool is at fault."""
    share, outcome = _compute_error_share(run), run.series("episode/acc")
    if share is None or (status := _CALLS_FAIL.judge(share)) == "ok":
        return None
    if outcome and ends(outcome)[1] >= _SOLVED:
        status = "warn"
    failed = [
        (call["error_kind"] or "tool", str(call["result"] or "")[:_RESULT_CHARS], key_of(record))
        for record, call in calls_of(run.sample)
        if call["is_error"]
    ]
    kinds, results = Counter(kind for kind, _, _ in failed), Counter(result for _, result, _ in failed)
    message = f"{share:.0%} of recent calls fail" + (f" ({_list_counts(calls)})" if calls else "")
    if failed:
        message += (
            f"; kinds of errors: {_list_counts(kinds)}; the most frequent result: {results.most_common(1)[0][0]!r}"
        )
    is_by_tool = not kinds or kinds.most_common(1)[0][0] in _BY_TOOL
    return judged(
        status,
        found=message,
        advice=_TOOL_ADVICE if is_by_tool else _ERROR_ADVICE,
        evidence={**evidence, "error_share": share, "tools_fail": status == "fail"},
        look_at=tuple(dict.fromkeys(key for _, _, key in failed))[-2:],
    )


def _compute_error_share(run: RunEvidence) -> float | None:
    recent = run.valid
    if len(recent) and recent["num_calls"].sum():
        return float(recent["num_call_errors"].sum() / recent["num_calls"].sum())
    calls, errors = run.series("episode/tool_calls"), run.series("episode/tool_errors")
    return recent_mean(errors) / recent_mean(calls) if calls and errors and recent_mean(calls) else None


def _list_counts(counts: Counter[str]) -> str:
    return ", ".join(f"{json.dumps(name)[1:-1]} {count}" for name, count in counts.most_common(5)) or "none"
