"""The `judge` tool of ReSeek: the policy says whether what it found last is useful; bad results leave the context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from verl_agentic import ToolCall, ToolResult
from verl_agentic.graders.components.reseek import VERDICTS

_SCHEMA: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": "judge",
        "description": "Says whether the last search result is useful; a bad one is removed.",
        "parameters": {
            "type": "object",
            "properties": {"verdict": {"type": "string", "description": "`good` or `bad`"}},
            "required": ["verdict"],
        },
    },
}


class JudgeTool:
    """Takes a verdict on the results of the last search."""

    name = "judge"
    schema = _SCHEMA

    def __init__(self) -> None:
        self._last: tuple[str, ...] = ()
        """Ids of the calls that can be judged."""
        self._bad: tuple[str, ...] = ()

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Returns what happened to the results."""
        verdict = VERDICTS.get(str(arguments.get("verdict")).strip().lower())
        if verdict is None:
            return _build_refusal("the verdict must be good or bad")
        if not self._last:
            return _build_refusal("there is no search result that is not judged yet")
        if not verdict:
            self._bad = self._last
        self._last = ()
        return ToolResult("It stays." if verdict else "It is removed.")

    def after_turn(self, calls: Sequence[ToolCall]) -> tuple[str, ...]:
        """Returns the ids of calls that were judged as bad in a turn; its searches can be judged next."""
        searched = tuple(call.call_id for call in calls if call.name == "search" and call.error is None)
        bad, self._bad = self._bad, ()
        self._last = searched or self._last
        return bad


def _build_refusal(reason: str) -> ToolResult:
    return ToolResult(f"Error: {reason}", is_error=True, error_kind="wrong_arguments")
