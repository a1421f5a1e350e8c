"""The solution: the cheapest routes, then the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from verl_agentic import EnvRow, Message, ToolCall
from verl_agentic.rewards.answers.short_answers import golden_answers_of


def gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
    """Returns the solution; for rows without `queries`, the golden answer at once."""
    queries = [str(query) for query in row.extra.get("queries", ())]
    answer = golden_answers_of(row.ground_truth)[0]

    def next_message(messages: Sequence[Message]) -> Message:
        turn = sum(message.role == "assistant" for message in messages)
        if turn < len(queries):
            call = ToolCall("search", {"query": queries[turn]})
            return Message("assistant", "", tool_calls=(call,), reasoning="The cheapest model that knows this is best.")
        return Message("assistant", answer, reasoning="I know enough to answer.")

    return next_message
