"""Line 6: calls by tool, and their errors."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from verl_agentic.diagnostics.diagnosis.evidence import RunEvidence, ends, highest, key_of, recent_mean, since
from verl_agentic.diagnostics.thresholds import (
    TOOL_CALLS_LEFT,
    TOOL_CALLS_WERE,
    TOOL_USE_ADVICE,
    TOOLS_NOT_NEEDED,
    UNKNOWN_TOOL,
    UNKNOWN_TOOL_ADVICE,
    Limit,
)
from verl_agentic.finding import Finding, unknown
from verl_agentic.trajectory_log.secrets import WITHHELD

_CALLS_FAIL = Limit(warn=0.5, fail=0.95)
"""Share of calls that fail."""
_RESULT_CHARS = 100
_ONE_SIDED = 0.95
_UNREADABLE = "(unreadable)"
# A tool as chat templates write it into the prompt.
_OFFERED = re.compile(r'"name"\s*:\s*"([\w.-]+)"\s*,\s*"(?:description|parameters)"')


def tool_distribution(run: RunEvidence) -> Finding:
    """Returns the calls by tool, the share of unknown tools, and whether calls stopped."""
    calls, unknown_names, look_at = _calls(run.sample)
    offered = _offered(run)
    series = run.series("episode/tool_calls")
    if not series and not len(run.rows):
        return unknown("there are neither trajectories nor episode/tool_calls")
    evidence: dict[str, Any] = {"calls": dict(calls), "unknown_tools": dict(unknown_names), "offered": offered}
    if series:
        evidence["calls_before"], evidence["calls_now"] = ends(series)
    judges = (
        _unused(run, calls, offered),
        _stopped(run),
        _hallucinated(run, calls, unknown_names, offered),
        _failing(run, calls),
    )
    for judged in judges:
        if judged is not None:
            return Finding(**{"look_at": look_at, **judged, "evidence": {**evidence, **judged.get("evidence", {})}})
    if not calls:
        now = f"{recent_mean(series):.3g} calls per episode" if series else "no calls"
        return Finding(status="ok", found=f"{now}; single calls are unknown", evidence=evidence)
    share, entropy = spread(calls, num_tools=len(offered) or len(calls))
    evidence |= {"top_share": share, "entropy": entropy}
    top = calls.most_common(1)[0][0]
    found = f"{_listed(calls)}; top share {share:.0%}, entropy {entropy:.2f} of 1"
    if len(offered) > 1 and share > _ONE_SIDED:
        advice = f"only {top} of {sorted(offered)} is used: check that prompt and data need the others"
        return Finding(status="warn", found=found, advice=advice, evidence=evidence)
    return Finding(status="ok", found=found, evidence=evidence)


def spread(calls: Mapping[str, int], *, num_tools: int) -> tuple[float, float]:
    """Returns the share of the most used tool, and the entropy of calls divided by the maximum for `num_tools`.

    The entropy is 0 where there is one tool only.
    """
    total = sum(calls.values())
    shares = [count / total for count in calls.values() if count]
    entropy = -sum(share * math.log(share) for share in shares)
    return max(shares), entropy / math.log(num_tools) if num_tools > 1 else 0.0


_BY_TOOL = ("tool", "tool_raised", "tool_timeout", "no_answer")
_TOOL_ADVICE = (
    "call the tool by hand: run the environment's solution (verl-agentic env validate), check its sandbox, server and "
    "data (verl-agentic doctor) and its timeout_s"
)
_ERROR_ADVICE = (
    "see episode/call_error/*: for malformed calls, use SFT or agentic.protocol_options; compare the arguments with "
    "the tool's schema in the prompt"
)


def _unused(run: RunEvidence, calls: Counter[str], offered: list[str]) -> dict[str, Any] | None:
    series = run.series("episode/tool_calls")
    episodes = run.episodes
    if calls or any(value for _, value in series) or (len(episodes) and episodes["num_calls"].sum()):
        return None
    span = f"{len(episodes)} episodes" if len(episodes) else f"{len(series)} steps"
    metric = run.series("episode/tools_offered")
    number = len(offered) or (recent_mean(metric) if metric else 0)
    if not number:
        advice = "fine if the task has no tools; `verl-agentic preflight` shows the tools in the prompt"
        status = "warn" if run.setting("actor_rollout_ref.rollout.multi_turn.tool_config_path") else "ok"
        return {
            "status": status,
            "found": f"no tool was called in {span}, and the prompt shows none",
            "advice": advice,
        }
    listed = ", ".join(offered) or f"{number:g} tools"
    found = f"no tool was ever called in {span}, though the prompt offers {listed}"
    outcome = run.series("episode/acc")
    if outcome and ends(outcome)[1] >= TOOLS_NOT_NEEDED:
        return {"status": "ok", "found": f"{found}; they are not needed: the outcome is {ends(outcome)[1]:.2f}"}
    return {"status": "fail", "found": found, "advice": TOOL_USE_ADVICE["never"], "look_at": _latest(run)}


def _stopped(run: RunEvidence) -> dict[str, Any] | None:
    series = run.series("episode/tool_calls")
    if len(series) < 6:
        return None
    before, now = highest(series), ends(series)[1]
    if before < TOOL_CALLS_WERE or (status := TOOL_CALLS_LEFT.judge(now / before)) == "ok":
        return None
    limit = TOOL_CALLS_LEFT.fail if status == "fail" else TOOL_CALLS_LEFT.warn
    first = since(series, lambda value: value <= limit * before)
    found = f"the policy stopped calling tools: {before:.2f} -> {now:.3g} calls per episode, since step {first}"
    return {"status": status, "found": found, "advice": TOOL_USE_ADVICE["fallen"], "look_at": _latest(run)}


def _hallucinated(
    run: RunEvidence, calls: Counter[str], unknown_names: Counter[str], offered: list[str]
) -> dict[str, Any] | None:
    total = sum(calls.values())
    share = sum(unknown_names.values()) / total if total else 0.0
    number, errors = dict(run.series("episode/tool_calls")), run.series("episode/call_error/unknown_tool")
    shares = [(step, value / number[step]) for step, value in errors if number.get(step)]
    if not total and shares:
        share = ends(shares)[1]
    if (status := UNKNOWN_TOOL.judge(share)) == "ok":
        return None
    names = f" ({_listed(unknown_names)})" if unknown_names else ""
    names += f"; the prompt offers {', '.join(offered)}" if offered else ""
    return {
        "status": status,
        "found": f"{share:.0%} of calls name an unknown tool{names}",
        "advice": UNKNOWN_TOOL_ADVICE,
    }


def _failing(run: RunEvidence, calls: Counter[str]) -> dict[str, Any] | None:
    """Returns calls that fail, with the most frequent result, and whether the policy or the tool is at fault."""
    share = _error_share(run)
    outcome = run.series("episode/acc")
    if share is None or (status := _CALLS_FAIL.judge(share)) == "ok":
        return None
    if status == "fail" and outcome and ends(outcome)[1] >= TOOLS_NOT_NEEDED:
        status = "warn"
    failed = [
        (call["error_kind"] or "tool", str(call["result"] or "")[:_RESULT_CHARS], key_of(record))
        for record in run.sample
        for turn in record["turns"] or ()
        for call in turn["calls"] or ()
        if call["is_error"]
    ]
    kinds, results = Counter(kind for kind, _, _ in failed), Counter(result for _, result, _ in failed)
    found = f"{share:.0%} of recent calls fail" + (f" ({_listed(calls)})" if calls else "")
    if failed:
        found += f"; kinds of errors: {_listed(kinds)}; the most frequent result: {results.most_common(1)[0][0]!r}"
    is_by_tool = not kinds or kinds.most_common(1)[0][0] in _BY_TOOL
    return {
        "status": status,
        "found": found,
        "advice": _TOOL_ADVICE if is_by_tool else _ERROR_ADVICE,
        "evidence": {"error_share": share, "tools_fail": status == "fail"},
        "look_at": tuple(dict.fromkeys(key for _, _, key in failed))[-2:],
    }


def _calls(records: Iterable[Mapping[str, Any]]) -> tuple[Counter[str], Counter[str], tuple[str, ...]]:
    """Returns calls by name, calls of unknown tools, and rows with such calls."""
    calls: Counter[str] = Counter()
    unknown_names: Counter[str] = Counter()
    shown: list[str] = []
    for record in records:
        for call in (call for turn in record["turns"] or () for call in turn["calls"] or ()):
            calls[call["name"] or _UNREADABLE] += 1
            if call["error_kind"] == "unknown_tool":
                unknown_names[call["name"] or _UNREADABLE] += 1
                shown.append(key_of(record))
    return calls, unknown_names, tuple(dict.fromkeys(shown))[:2]


def _offered(run: RunEvidence) -> list[str]:
    """Returns the tools that the rendered prompts of some rows offer."""
    names: dict[str, None] = {}
    for record in run.sample[:4]:
        text = " ".join(message["content"] or "" for message in record["prompt"] or ())
        if run.tokenizer is not None:
            ids = [token for token in record["prompt_ids"] if token != WITHHELD]
            text += run.tokenizer.decode(ids, skip_special_tokens=False)
        names.update(dict.fromkeys(_OFFERED.findall(text)))
    return list(names)


def _error_share(run: RunEvidence) -> float | None:
    recent = run.valid
    if len(recent) and recent["num_calls"].sum():
        return float(recent["num_call_errors"].sum() / recent["num_calls"].sum())
    calls, errors = run.series("episode/tool_calls"), run.series("episode/tool_errors")
    return recent_mean(errors) / recent_mean(calls) if calls and errors and recent_mean(calls) else None


def _latest(run: RunEvidence) -> tuple[str, ...]:
    return tuple(key_of(row) for _, row in run.valid.tail(1).iterrows())


def _listed(counts: Mapping[str, int]) -> str:
    listed = sorted(counts.items(), key=lambda item: -item[1])[:5]
    return ", ".join(f"{json.dumps(name)[1:-1]} {count}" for name, count in listed) or "none"
