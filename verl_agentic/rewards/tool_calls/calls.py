"""What can be said of a tool call without knowing the tool."""

from __future__ import annotations

import json

from verl_agentic.rewards.sample import Call

_UNREADABLE = frozenset({"malformed_json", "not_an_object", "unclosed", "empty", "in_reasoning", "invalid_action"})
_TOO_DEEP = "..."
_JSON = json.JSONEncoder(sort_keys=True, default=str)


def is_well_formed(call: Call) -> bool:
    """Returns whether the call could be read: a name and an object of arguments, in the place for calls."""
    return call.error_kind not in _UNREADABLE


def was_carried_out(call: Call) -> bool:
    """Returns whether a tool got to work on the call; one that it failed at, or was too slow for, counts."""
    return call.error_kind in (None, "tool_timeout", "tool_raised", "no_answer")


def succeeded(call: Call) -> bool:
    """Returns whether the tool answered and did what it was meant to."""
    return call.result is not None and not call.is_error and call.error_kind is None


def call_key(call: Call) -> str:
    """Returns the same text for calls of one tool with the same arguments, whatever the order of their keys.

    Arguments nested too deeply to be written out count as the same: that is no way to hide a repetition.
    """
    try:
        arguments = _JSON.encode(dict(call.arguments))
    except (RecursionError, TypeError, ValueError):
        arguments = _TOO_DEEP
    return f"{call.name}\n{arguments}"
