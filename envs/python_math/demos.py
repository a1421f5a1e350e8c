"""The solution, and demonstrations of mixed quality.

Most demonstrations guess, and a few make a malformed call or copy an operand wrongly. A model that imitates them solves
only some of the tasks, which GRPO can improve.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Literal

from verl_agentic import EnvRow, Message, ToolCall

from .tasks import Task, to_task

Kind = Literal["tool", "guess", "malformed", "wrong_operand"]
_PRODUCT = re.compile(r"^What is (\d+\*\d+)\?$")
MIXTURE: dict[Kind, float] = {"tool": 0.40, "guess": 0.58, "malformed": 0.01, "wrong_operand": 0.01}
"""Share of each kind."""


def gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
    """Returns the solution: the product through the tool; the boxed ground truth at once for other questions, and for
    rows without a tool."""
    product = None if row.extra.get("tool") == "none" else _PRODUCT.search(row.prompt[-1].content)

    def next_message(messages: Sequence[Message]) -> Message:
        if product is None:
            return Message("assistant", boxed(str(row.ground_truth)), reasoning="I can answer this without a tool.")
        if messages[-1].role == "tool":
            return Message("assistant", boxed(messages[-1].content))
        return Message("assistant", "", tool_calls=(ToolCall("python", {"code": f"print({product[1]})"}),))

    return next_message


def demonstrator(row: EnvRow, *, rng: random.Random, kind: Kind | None = None) -> Callable[[Sequence[Message]], str]:
    """Returns the text of each turn as a function of the conversation so far.

    Args:
        row: the question.
        rng: source of every choice.
        kind: of the demonstration; None: drawn from `MIXTURE`.
    """
    task = to_task(row)
    kind = kind or rng.choices(list(MIXTURE), weights=list(MIXTURE.values()))[0]
    guess = boxed(str(_draw_guess(task, rng)))
    if kind == "guess":
        return lambda messages: guess
    expression = _miscopy_digit(task, rng) if kind == "wrong_operand" else task.expression
    call = tool_call(f"print({expression})")
    if kind == "malformed":
        call = _break_call(call, rng)

    def next_text(messages: Sequence[Message]) -> str:
        if messages[-1].role != "tool":
            return call
        result = messages[-1].content
        return boxed(result) if result.isdigit() else guess

    return next_text


def tool_call(code: str) -> str:
    """Returns a call of the tool as the policy should write it."""
    call = json.dumps({"name": "python", "arguments": {"code": code}})
    return f"<tool_call>\n{call}\n</tool_call>"


def boxed(answer: str) -> str:
    """Returns a final answer as the policy should write it."""
    return rf"\boxed{{{answer}}}"


def _draw_guess(task: Task, rng: random.Random) -> int:
    """Returns a number of about the right size."""
    return max(1, round(task.left * task.right * rng.uniform(0.5, 1.5)))


def _miscopy_digit(task: Task, rng: random.Random) -> str:
    """Returns the expression with one digit replaced by another."""
    text = task.expression
    place = rng.choice([i for i, c in enumerate(text) if c.isdigit()])
    other = rng.choice([d for d in "123456789" if d != text[place]])
    return text[:place] + other + text[place + 1 :]


def _break_call(call: str, rng: random.Random) -> str:
    """Returns a call with invalid JSON, as models write it."""
    return rng.choice([call.replace(')"}}', ")}}"), call.replace('"}}', '"}'), call.replace('"arguments": {', "")])
