"""The environment `my_env`: one tool, `look_up`; the answer must be the number alone."""

from __future__ import annotations

from verl_agentic import EnvRow, Reward, StopReason, ToolEnv, ToolResult, Transcript


class MyEnv(ToolEnv):
    """A question that needs a look-up, and one right answer (`row.ground_truth`)."""

    def __init__(self, row: EnvRow, *, tool_timeout_s: float) -> None:
        self._looked_up: set[str] = set()  # state of this episode alone
        super().__init__(row, tools=[self.look_up], tool_timeout_s=tool_timeout_s)

    def look_up(self, thing: str) -> str | ToolResult:
        """Returns how many of a thing are in the store.

        Args:
            thing: What to count.
        """
        stock = self.row.extra["stock"]
        if thing not in stock:  # return mistakes of the policy as results, so that it can learn
            return ToolResult(f"Error: no {thing[:40]!r} here; there are {', '.join(stock)}", is_error=True)
        self._looked_up.add(thing)
        return str(stock[thing])

    async def score(self, transcript: Transcript) -> Reward:
        """Returns outcome 1 for the right number of a thing that was looked up, else 0; a cut turn is no answer."""
        is_answer = transcript.stop_reason is StopReason.ANSWERED
        is_right = is_answer and transcript.final_answer.strip() == str(self.row.ground_truth)
        return Reward(float(is_right and self.row.extra["thing"] in self._looked_up))

    # Override `start` to prepare something (it returns the prompt), and `close` to release it. `close` is called
    # exactly once, also after a failed start. Run blocking work in a thread.


def make_env(row: EnvRow, *, tool_timeout_s: float = 30.0) -> MyEnv:
    """Returns the environment of one episode; must not block.

    Args:
        row: the task.
        tool_timeout_s: deadline of one call, in seconds.
    """
    return MyEnv(row, tool_timeout_s=tool_timeout_s)
