"""Grades answers with reasoning-gym's graders, except where a grader accepts wrong answers or runs the answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from verl_agentic.errors import is_infrastructure

from .problems import Problem

MAX_ANSWER_CHARS = 8_192
"""Longer answers are wrong; no solution is as long, and some graders take long."""
_MAX_EXPRESSION_CHARS = 512
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
_SUM = re.compile(r"[\d\s+\-*/()]+")
_NAMES = r"\b(?:[a-zA-Z]|sin|cos|tan|sec|csc|cot|sinh|cosh|tanh|asin|acos|atan|exp|log|ln|sqrt|pi)\b"
_EXPRESSION = re.compile(rf"(?:{_NAMES}|\b\d+(?:\.\d+)?|[\s+\-*/(),])+")
_LARGE_POWER = re.compile(r"\*\*\s*(?:\d{3}|[^\d\s(]|\([^)]{8}|\S+\s*\*\*)|(?:\)\s*\*\*.*){3}", re.DOTALL)


def grade(task: str, problem: Problem, answer: str) -> float:
    """Returns the score of an answer, 0 to 1; only 1 is a solved problem.

    An answer on which the grader raises is wrong. Errors of the infrastructure pass.
    """
    answer = answer.strip()
    if not answer or len(answer) > MAX_ANSWER_CHARS:
        return 0.0
    try:
        if task in _EXACT:
            return float(answer == problem.solution.strip())
        if task in _RULES and not _RULES[task](problem, answer):
            return 0.0
        return min(1.0, max(0.0, problem.score(answer)))
    except Exception as cause:
        if is_infrastructure(cause):
            raise
        return 0.0


def _is_number(problem: Problem, answer: str) -> bool:
    return _NUMBER.fullmatch(answer) is not None


def _is_sum(problem: Problem, answer: str) -> bool:
    return len(answer) <= _MAX_EXPRESSION_CHARS and "**" not in answer and _SUM.fullmatch(answer) is not None


def _uses_the_numbers(problem: Problem, answer: str) -> bool:
    wanted = sorted(problem.entry["metadata"]["numbers"])
    return _is_sum(problem, answer) and sorted(map(int, re.findall(r"\d+", answer))) == wanted


def _is_expression(problem: Problem, answer: str) -> bool:
    is_safe = _EXPRESSION.fullmatch(answer) is not None and _LARGE_POWER.search(answer) is None
    return len(answer) <= _MAX_EXPRESSION_CHARS and is_safe


def _is_a_placement(problem: Problem, answer: str) -> bool:
    return answer in problem.entry["metadata"]["valid_answers"]


_EXACT = frozenset(
    (
        # bool(answer) == bool("False"): every text is right.
        "game_of_life_halting",
        # eval(answer), for partial credit.
        "binary_matrix",
        "spiral_matrix",
        "string_insertion",
    )
)
"""Tasks with one answer whose grader is not used: it accepts wrong answers, or runs the answer as Python."""
_RULES: Mapping[str, Callable[[Problem, str], bool]] = {
    # The first number of the answer counts, so the question often answers itself.
    "gsm_symbolic": _is_number,
    # sympy.parse_expr is eval. Besides, an Integral(...) answers every integral, and 9**9**9 takes for ever.
    "countdown": _is_sum,
    "intermediate_integration": _is_expression,
    "polynomial_multiplication": _is_expression,
    "simple_integration": _is_expression,
    # Any four numbers of the range are accepted.
    "puzzle24": _uses_the_numbers,
    # eval(answer), for partial credit.
    "n_queens": _is_a_placement,
}
"""Condition on an answer before its grader sees it."""
