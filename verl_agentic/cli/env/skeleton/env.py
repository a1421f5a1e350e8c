"""The environment `my_env`: one tool, `look_up`; the answer must be the number alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_agentic import EnvRow, Reward, StopReason, ToolEnv, ToolResult, Transcript


class LookUp:
    """The tool: says how many of one thing there are."""

    name = "look_up"
    schema: Mapping[str, Any] = {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "Returns how many of a thing are in the store.",
            "parameters": {
                "type": "object",
                "properties": {"thing": {"type": "string", "description": "What to count."}},
                "required": ["thing"],
            },
        },
    }

    def __init__(self, stock: Mapping[str, int]) -> None:
        self._stock = stock
        self.looked_up: set[str] = set()  # state of this episode, and of no other

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Answers one call. What the policy did wrong is a result that it can learn from, never an exception."""
        thing = arguments.get("thing")
        if not isinstance(thing, str) or set(arguments) != {"thing"}:
            return ToolResult('Error: the arguments must be {"thing": "<string>"}', is_error=True)
        if thing not in self._stock:
            return ToolResult(f"Error: no {thing[:40]!r} here; there are {', '.join(self._stock)}", is_error=True)
        self.looked_up.add(thing)
        return ToolResult(str(self._stock[thing]))


class MyEnv(ToolEnv):
    """A question that needs two look-ups, and one right answer (`row.ground_truth`)."""

    def __init__(self, row: EnvRow, *, tool_timeout_s: float) -> None:
        self._look_up = LookUp(row.extra["stock"])
        super().__init__(row, [self._look_up], tool_timeout_s=tool_timeout_s)

    async def score(self, transcript: Transcript) -> Reward:
        """Returns outcome 1 when the policy's answer is the right number, else 0; a cut turn is no answer."""
        is_answer = transcript.stop_reason is StopReason.ANSWERED
        is_right = is_answer and transcript.final_answer.strip() == str(self.row.ground_truth)
        return Reward(float(is_right and len(self._look_up.looked_up) >= 2))

    # `start` returns the prompt of the row. Overwrite it where something must be prepared, and `close` where something
    # must be released: it is called exactly once, also after a failed start. What blocks goes into a thread.


def make_env(row: EnvRow, *, tool_timeout_s: float = 30.0) -> MyEnv:
    """Returns the environment of one episode; must not block.

    Args:
        row: the task.
        tool_timeout_s: deadline of one call, in seconds.
    """
    return MyEnv(row, tool_timeout_s=tool_timeout_s)
