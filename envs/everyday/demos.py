"""The solution, and demonstrations of mixed quality.

Almost half of them guess, as a small model would, and some run flawed code. A model that imitates them solves only
some of the questions, which GRPO can improve.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Literal

from verl_agentic import EnvRow, Message, ToolCall

Kind = Literal["tool", "guess", "flawed"]
MIXTURE: dict[Kind, float] = {"tool": 0.45, "guess": 0.45, "flawed": 0.10}
"""Share of each kind."""


def gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
    """Returns the solution: Python prints the answer, and the last turn repeats it."""
    return _with_code(row.extra["code"], otherwise=str(row.ground_truth))


def demonstrator(
    row: EnvRow, *, rng: random.Random, kind: Kind | None = None
) -> Callable[[Sequence[Message]], Message]:
    """Returns the next message as a function of the conversation so far.

    Args:
        row: the question.
        rng: source of every choice.
        kind: of the demonstration; None: drawn from `MIXTURE`.
    """
    kind = kind or rng.choices(list(MIXTURE), weights=list(MIXTURE.values()))[0]
    guess = _draw_guess(row, rng)
    if kind == "guess":
        return lambda messages: Message("assistant", guess)
    code = row.extra["code"]
    return _with_code(_add_flaw(code, rng) if kind == "flawed" else code, otherwise=guess)


def _with_code(code: str, *, otherwise: str) -> Callable[[Sequence[Message]], Message]:
    """Runs code once and answers what it prints, or something else if it fails."""

    def next_message(messages: Sequence[Message]) -> Message:
        last = messages[-1]
        if last.role != "tool":
            return Message("assistant", "", tool_calls=(ToolCall("python", {"code": code}),))
        return Message("assistant", otherwise if last.is_error else last.content.strip())

    return next_message


def _draw_guess(row: EnvRow, rng: random.Random) -> str:
    """Returns an answer that looks right, and rarely is."""
    if guesses := row.extra.get("guesses"):
        return rng.choice(guesses)
    number = int(row.ground_truth)
    near = number + rng.choice([-1, 1, 2]) if number < 10 else round(number * rng.uniform(0.5, 1.5))
    return str(max(0, near))


def _add_flaw(code: str, rng: random.Random) -> str:
    """Returns code with a bracket or its quotes left out, or with one digit replaced by another."""
    flaws = [code.removesuffix(")")]
    if '"' in code:
        flaws.append(code.replace('"', ""))
    if places := [place for place, sign in enumerate(code) if sign.isdigit()]:
        place = rng.choice(places)
        flaws.append(code[:place] + rng.choice("123456789".replace(code[place], "")) + code[place + 1 :])
    return rng.choice(flaws)
