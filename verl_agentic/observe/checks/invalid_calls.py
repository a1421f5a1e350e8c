"""Alarm: invalid tool calls."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from verl_agentic.base.finding import Finding, judged
from verl_agentic.observe.diagnosis.check import Limit
from verl_agentic.observe.diagnosis.history import History, ratio, total
from verl_agentic.observe.diagnosis.row_keys import calls_of, key_of
from verl_agentic.observe.health.alarm import alarm

if TYPE_CHECKING:
    from verl_agentic.observe.diagnosis.evidence import RunEvidence

_UNKNOWN = Limit(warn=0.1, fail=0.3)
_UNREADABLE = ("malformed_json", "not_an_object", "wrong_arguments", "in_reasoning", "unclosed", "empty", "too_many")
_KINDS = ("unknown_tool", *_UNREADABLE)
_CALLS = "episode/tool_calls"
_ADVICE = {
    "unknown_tool": "compare these names with the tools in the prompt (verl-agentic preflight). If tools were renamed "
    "since SFT, or the base model knows other names, rename the tool, warm up on its name (SFT), or add the component "
    "tool_validity (agentic.rubric.components)",
    "wrong_arguments": "check that the tools' schemas are in the prompt and are clear; add the component "
    "tool_validity (agentic.rubric.components)",
    "too_many": "raise agentic.limits.max_calls_per_turn, or state the limit in the prompt",
}
_ELSE = (
    "check that the protocol fits the model's chat template (agentic.protocol, "
    "verl-agentic preflight), allow repair of calls (agentic.protocol_options), or "
    "warm up with SFT"
)


def _describe_unknown_names(run: RunEvidence) -> tuple[str, tuple[str, ...]]:
    calls = [
        (call["name"], key_of(record)) for record, call in calls_of(run.sample) if call["error_kind"] == "unknown_tool"
    ]
    names = ", ".join(f"{name} {count}" for name, count in Counter(name for name, _ in calls).most_common(5))
    words = f"unknown tools: {names}; the prompt offers {', '.join(run.offered_tools) or 'none'}" if names else ""
    return words, tuple(dict.fromkeys(key for _, key in calls))[:2]


@alarm(
    reads=(_CALLS, "episode/call_error/*"),
    also=tuple(f"episode/call_error/{kind}" for kind in _KINDS),
    details=_describe_unknown_names,
)
def invalid_calls(
    history: History, *, unknown_tool: float = _UNKNOWN.warn, invalid: float = 0.3, window: int = 10
) -> Finding | None:
    """Many calls name unknown tools or cannot be parsed.

    Args:
        unknown_tool: share of calls of unknown tools. Small, because the prompt lists the tools.
        invalid: share of calls that failed because of the policy.
        window: steps whose median is compared; long, because early mistakes soon disappear.
    """
    shares = {
        kind: history.level(ratio(f"episode/call_error/{kind}", _CALLS), window) or 0.0
        for kind in _KINDS
        if f"episode/call_error/{kind}" in history.names
    }
    of_all = history.level(ratio(total([f"episode/call_error/{kind}" for kind in shares]), _CALLS), window) or 0.0
    status = _UNKNOWN.judge(shares.get("unknown_tool", 0.0), warn=unknown_tool)
    is_unknown = status != "ok"
    if not is_unknown and of_all >= invalid:
        status = "warn"
    worst = "unknown_tool" if is_unknown else max(shares, key=lambda kind: shares[kind], default="")
    limit = f"unknown tools {unknown_tool:.0%}" if is_unknown else f"all kinds {invalid:.0%}"
    return judged(
        status,
        found=f"{of_all:.0%} of the tool calls are invalid"
        + (f", most of all {worst} with {shares[worst]:.0%}" if of_all else "")
        + f" (limit: {limit})",
        evidence={"invalid_rate": of_all, **{f"call_error/{kind}": share for kind, share in shares.items() if share}},
        advice=_ADVICE.get(worst, _ELSE),
        check="unknown_tool" if is_unknown else "invalid",
    )
