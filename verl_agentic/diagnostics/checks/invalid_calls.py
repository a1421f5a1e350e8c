"""Alarm: invalid tool calls."""

from __future__ import annotations

from verl_agentic.diagnostics.health.alarm import History, alarm, ratio, total
from verl_agentic.diagnostics.thresholds import UNKNOWN_TOOL, UNKNOWN_TOOL_ADVICE
from verl_agentic.finding import Finding, warn

_UNREADABLE = ("malformed_json", "not_an_object", "wrong_arguments", "in_reasoning", "unclosed", "empty", "too_many")
_KINDS = ("unknown_tool", *_UNREADABLE)
_CALLS = "episode/tool_calls"
_ADVICE = {
    "unknown_tool": UNKNOWN_TOOL_ADVICE,
    "wrong_arguments": "check that the tools' schemas are in the prompt and are clear; add the component "
    "tool_validity (agentic.rubric.components)",
    "too_many": "raise agentic.limits.max_calls_per_turn, or state the limit in the prompt",
}
_ELSE = (
    "check that the protocol fits the model's chat template (agentic.protocol, "
    "verl-agentic preflight), allow repair of calls (agentic.protocol_options), or "
    "warm up with SFT"
)


@alarm(
    reads=(_CALLS, "episode/call_error/*"),
    also=tuple(f"episode/call_error/{kind}" for kind in _KINDS),
)
def invalid_calls(
    history: History, *, unknown_tool: float = UNKNOWN_TOOL.warn, invalid: float = 0.3, window: int = 10
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
    is_unknown = shares.get("unknown_tool", 0.0) >= unknown_tool
    if not is_unknown and of_all < invalid:
        return None
    worst = "unknown_tool" if is_unknown else max(shares, key=lambda kind: shares[kind])
    limit = f"unknown tools {unknown_tool:.0%}" if is_unknown else f"all kinds {invalid:.0%}"
    return warn(
        found=f"{of_all:.0%} of the tool calls are invalid, most of all {worst} with {shares[worst]:.0%} (limit: "
        f"{limit})",
        evidence={"invalid_rate": of_all, **{f"call_error/{kind}": share for kind, share in shares.items() if share}},
        advice=_ADVICE.get(worst, _ELSE),
        check="unknown_tool" if is_unknown else "invalid",
    )
