"""Demonstrations of mixed quality about the synthetic world or docstrings, so that RL gets different rewards."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Literal

from verl_agentic import EnvRow, Message, ToolCall

from .docstrings import make_questions
from .gold import gold
from .question import Question
from .synthetic import make_world

Kind = Literal["search", "guess", "wrong_query", "misread"]
MIXTURE: dict[Kind, float] = {"search": 0.60, "guess": 0.34, "wrong_query": 0.02, "misread": 0.04}
"""Share of each kind."""


def demonstrator(
    row: EnvRow, *, rng: random.Random, kind: Kind | None = None
) -> Callable[[Sequence[Message]], Message]:
    """Returns the next message as a function of the conversation so far.

    Args:
        row: a question about the synthetic world or docstrings.
        rng: source of every choice.
        kind: of the demonstration; None: drawn from `MIXTURE`.
    """
    kind = kind or rng.choices(list(MIXTURE), weights=list(MIXTURE.values()))[0]
    solution, guess = gold(row), Message("assistant", _draw_guess(row, rng))
    stranger = ToolCall("search", {"query": _draw_query(row, rng)})

    def next_turn(messages: Sequence[Message]) -> Message:
        if kind == "guess":
            return guess
        if kind == "wrong_query":
            return guess if messages[-1].role == "tool" else Message("assistant", "", tool_calls=(stranger,))
        turn = solution(messages)
        return guess if kind == "misread" and not turn.tool_calls else turn

    return next_turn


def _draw_query(row: EnvRow, rng: random.Random) -> str:
    """Returns a query that does not lead to the answer."""
    if _is_about_docstrings(row):
        return _draw_question(row, rng).text
    return rng.choice(list(make_world().home))


def _draw_guess(row: EnvRow, rng: random.Random) -> str:
    """Returns a random name of the right kind."""
    if _is_about_docstrings(row):
        return _draw_question(row, rng).subject
    world = make_world()
    kind = str(row.extra["task_id"]).partition("-")[0]
    names = {"river": list(world.river.values()), "teacher": list(world.home)}.get(kind, list(world.river))
    return rng.choice(names)


def _draw_question(row: EnvRow, rng: random.Random) -> Question:
    """Returns a random question about another function."""
    return rng.choice([question for question in make_questions() if question.subject != row.ground_truth])


def _is_about_docstrings(row: EnvRow) -> bool:
    return str(row.extra["task_id"]).startswith("docstring-")
