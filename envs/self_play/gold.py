"""The solution of both roles: a seeded task is proposed, and every task is solved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from verl_agentic import EnvRow, Message


def gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
    """Returns the proposal of the row, or the answer: also that to the proposal, which sub-agents are asked."""
    task: dict[str, Any] = row.extra.get("solution") or (
        row.ground_truth if row.extra["kind"] == "code" else {"answer": row.ground_truth}
    )

    def next_message(messages: Sequence[Message]) -> Message:
        is_proposer = row.extra["role"] == "propose" and messages[0].content == row.prompt[0].content
        say = _format_proposal if is_proposer else _format_answer
        return Message("assistant", say(row, task), reasoning="I have thought about it.")

    return next_message


def _format_proposal(row: EnvRow, task: dict[str, Any]) -> str:
    if row.extra["kind"] == "math":
        return f"<question>{task['question']}</question>\n\\boxed{{{task['answer']}}}"
    return f"```python\n{task['program']}\n```\n\n```input\n{task['arguments']}\n```"


def _format_answer(row: EnvRow, task: dict[str, Any]) -> str:
    if row.extra["kind"] == "math":
        return f"\\boxed{{{task['answer']}}}"
    return f"```\n{task['output'] if row.extra['mode'] == 'deduction' else task['arguments']}\n```"
