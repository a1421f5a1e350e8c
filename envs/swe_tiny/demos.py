"""Solution and demonstrations: the right edit, a wrong operator, a text that is not there."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Literal

from verl_agentic import EnvRow, Message, ToolCall

Kind = Literal["right", "wrong_operator", "wrong_line", "not_found"]
MIXTURE: dict[Kind, float] = {"right": 0.38, "wrong_operator": 0.46, "wrong_line": 0.08, "not_found": 0.08}
"""Share of each kind. The wrong operator is the same for a line, so the most likely edit of a clone is wrong."""
_OPERATORS = ("+", "-", "*", ">", "<", ">=", "<=", "==", "!=")


def gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
    """Returns the policy that makes the right edit and submits."""
    return _make_policy(row.extra["old_line"], row.extra["new_line"])


def demonstrator(
    row: EnvRow, *, rng: random.Random, kind: Kind | None = None
) -> Callable[[Sequence[Message]], Message]:
    """Returns the next message as a function of the conversation so far.

    Args:
        row: a task.
        rng: source of every choice.
        kind: of the demonstration; None: drawn from `MIXTURE`.
    """
    kind = kind or rng.choices(list(MIXTURE), weights=list(MIXTURE.values()))[0]
    old, new = row.extra["old_line"], row.extra["new_line"]
    if kind == "wrong_operator":
        new = _other_operator(old, random.Random(old), {old, new})
    elif kind == "wrong_line":
        lines = [line.strip() for line in row.extra["source"].split("\n")[1:]]
        old = rng.choice([line for line in lines if line != old and _find_operators(line)] or lines)
        new = _other_operator(old, rng, {old})
    elif kind == "not_found":
        old = _other_operator(old, rng, {old})
    return _make_policy(old, new)


def _make_policy(old: str, new: str) -> Callable[[Sequence[Message]], Message]:
    def next_message(messages: Sequence[Message]) -> Message:
        if messages[-1].role == "tool":
            return Message("assistant", "done")
        return Message("assistant", "", tool_calls=(ToolCall("edit", {"old": old, "new": new}),))

    return next_message


def _find_operators(line: str) -> list[int]:
    words = line.split(" ")
    return [index for index, word in enumerate(words) if word in _OPERATORS]


def _other_operator(line: str, rng: random.Random, excluded: set[str]) -> str:
    """Returns the line with another operator; a line without one gets a word more."""
    words, places = line.split(" "), _find_operators(line)
    if not places:
        return f"{line} + 1"
    place = rng.choice(places)
    lines = [" ".join([*words[:place], operator, *words[place + 1 :]]) for operator in _OPERATORS]
    return rng.choice([candidate for candidate in lines if candidate not in excluded])
