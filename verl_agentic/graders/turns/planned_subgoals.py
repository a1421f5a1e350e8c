"""Reads subgoals from a planner model's JSON, and marks unverifiable ones.

{"subgoals": [{"name": "find the key", "check": {"tool": "take", "arguments": {"object": "key"}}},
              {"name": "think it over", "check": null}]}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verl_agentic.base.errors import DataError
from verl_agentic.graders.text.json_answers import load_json_answer
from verl_agentic.graders.turns.subgoal_checks import Subgoal

MAX_SUBGOALS = 10


@dataclass(frozen=True, kw_only=True)
class SubgoalPlan:
    """A planner's subgoals."""

    subgoals: tuple[Subgoal, ...]
    """Subgoals with a valid check."""
    unverifiable: tuple[str, ...]
    """Names of the others, which are never rewarded."""

    @property
    def size(self) -> int:
        """Number of planned subgoals, including unverifiable ones."""
        return len(self.subgoals) + len(self.unverifiable)


def read_plan(reply: Any, *, max_subgoals: int = MAX_SUBGOALS) -> SubgoalPlan:
    """Returns the plan in a planner's reply.

    Args:
        reply: its text (with or without thoughts, words or a code fence around the JSON), or the JSON as an object.
        max_subgoals: maximum number of subgoals.

    Raises:
        DataError: the JSON has another form, names repeat, there are no or too many subgoals, or one lacks `check`. An
            invalid check makes its subgoal unverifiable instead.
    """
    entries = _read_entries(reply)
    if not 0 < len(entries) <= max_subgoals:
        raise DataError(f"a plan must have 1 to {max_subgoals} subgoals, got {len(entries)}; ask the planner again")
    named = [(_read_name(entry), entry["check"]) for entry in entries]
    if len({name for name, _ in named}) < len(named):
        raise DataError(f"a plan must have subgoals of different names, got {[n for n, _ in named]}; ask again")
    subgoals, unverifiable = [], []
    for name, check in named:
        try:
            subgoals.append(Subgoal.from_mapping(check, name=name))
        except DataError:
            unverifiable.append(name)
    return SubgoalPlan(subgoals=tuple(subgoals), unverifiable=tuple(unverifiable))


def _read_entries(reply: Any) -> list[Any]:
    if isinstance(reply, str):
        try:
            reply = load_json_answer(reply, with_prose=True)
        except (ValueError, RecursionError) as cause:
            raise DataError(f"a plan must be JSON, got {reply[:200]!r}; ask the planner again") from cause
    entries = reply.get("subgoals") if isinstance(reply, Mapping) else None
    if not isinstance(entries, list):
        raise DataError(f'a plan must be {{"subgoals": [...]}}, got {str(reply)[:200]}; ask the planner again')
    return entries


def _read_name(entry: Any) -> str:
    name = entry.get("name") if isinstance(entry, Mapping) and "check" in entry else None
    if not isinstance(name, str) or not name.strip():
        raise DataError(f'a planned subgoal must be {{"name": ..., "check": ...}}, got {str(entry)[:200]}; ask again')
    return name.strip()
