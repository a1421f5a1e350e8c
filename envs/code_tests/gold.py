"""The solution of every task that `make_rows` makes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from verl_agentic import DataError, EnvRow, Message, ToolCall

from .families import FAMILIES, reference_solution


def gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
    """Returns the policy that runs the public tests, if any, on the reference solution and then answers with it.

    Raises:
        DataError: the row has no family, so its solution is unknown.
    """
    family = FAMILIES.get(str(row.extra.get("family")))
    if family is None:
        raise DataError(f"the solution is known for the families {sorted(FAMILIES)}, got {row.extra.get('family')!r}")
    code = reference_solution(family, json.loads(row.extra["parameters"]))

    def next_message(messages: Sequence[Message]) -> Message:
        if not row.extra.get("public_tests") or any(message.role == "tool" for message in messages[len(row.prompt) :]):
            return Message("assistant", f"```python\n{code}```")
        return Message("assistant", "", tool_calls=(ToolCall("run_tests", {"code": code}),))

    return next_message
