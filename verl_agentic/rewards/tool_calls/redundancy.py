"""Useless tool calls."""

from __future__ import annotations

from collections.abc import Sequence

from verl_agentic.rewards.sample import Call
from verl_agentic.rewards.tool_calls.calls import call_key, was_carried_out


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
