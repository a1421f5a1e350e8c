"""Properties of tool calls that do not depend on the tool, and useless calls."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from verl_agentic.rewards.sample import Call

_UNREADABLE = frozenset({"malformed_json", "not_an_object", "unclosed", "empty", "in_reasoning", "invalid_action"})
_TOO_DEEP = "..."
_JSON = json.JSONEncoder(sort_keys=True, default=str)


def is_well_formed(call: Call) -> bool:
    """Returns whether the call could be read: a name and an object of arguments."""
    return call.error_kind not in _UNREADABLE


def was_carried_out(call: Call) -> bool:
    """Returns whether a tool executed the call, even if it failed or timed out."""
    return call.error_kind in (None, "tool_timeout", "tool_raised", "no_answer")


def succeeded(call: Call) -> bool:
    """Returns whether the tool answered without an error."""
    return call.result is not None and not call.is_error and call.error_kind is None


def call_key(call: Call) -> str:
    """Returns equal texts for calls of one tool with equal arguments, in any order of keys.

    Arguments that are nested too deeply count as equal, so they cannot hide a repetition.
    """
    try:
        arguments = _JSON.encode(dict(call.arguments))
    except (RecursionError, TypeError, ValueError):
        arguments = _TOO_DEEP
    return f"{call.name}\n{arguments}"


def normalised_entropy(counts: Sequence[int]) -> float:
    """Returns H / ln n of the calls over n >= 2 tools, in [0, 1]; 0 without calls."""
    total = sum(counts)
    shares = [count / total for count in counts if count]
    return max(0.0, -sum(share * math.log(share) for share in shares)) / math.log(len(counts))


def are_redundant(calls: Sequence[Call]) -> list[bool]:
    """Returns for each call of an episode whether it was useless.

    A call is useless if it was not carried out, or if it repeats an earlier one (same tool and arguments) with the same
    result. A repeated call with a new result (tests after an edit, the next page) is useful.
    """
    earlier_calls: set[tuple[str, str | None]] = set()
    redundant = []
    for call in calls:
        key = (call_key(call), call.result)
        redundant.append(key in earlier_calls or not was_carried_out(call))
        earlier_calls.add(key)
    return redundant


def redundancy(calls: Sequence[Call]) -> float:
    """Returns the share of useless calls, in [0, 1]; 0 without calls."""
    return sum(are_redundant(calls)) / len(calls) if calls else 0.0
