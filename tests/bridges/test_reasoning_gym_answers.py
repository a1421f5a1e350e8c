"""reasoning_gym: for every generator, solutions in other spellings are right, and altered ones or guesses are wrong."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from verl_agentic.bridges.reasoning_gym import CARD
from verl_agentic.bridges.reasoning_gym import answer_forms as forms
from verl_agentic.bridges.reasoning_gym.answer_forms import data_of
from verl_agentic.bridges.reasoning_gym.grading import _RULES, _SEVERAL, grade
from verl_agentic.bridges.reasoning_gym.problems import Problem, load_problem
from verl_agentic.data.env_validation.answer_checks import CONSTANTS, exceeds_chance
from verl_agentic.data.env_validation.gold_answers import altered_answers, spellings_of

_ROWS = 12
_FAST = (
    "coin_flip",
    "gsm_symbolic",
    "letter_jumble",
    "list_functions",
    "decimal_arithmetic",
    "tower_of_hanoi",
    "sokoban",
)


@pytest.fixture(scope="module", autouse=True)
def package() -> Any:
    return pytest.importorskip("reasoning_gym")


def solved_problems(task: str) -> list[Problem]:
    problems = (load_problem(task, 7919 * number + 5, {}) for number in range(_ROWS))
    return [problem for problem in problems if grade(task, problem, problem.solution) == 1.0]


def check_task(task: str) -> None:
    problems = solved_problems(task)
    assert len(problems) > _ROWS // 2
    for problem in problems:
        for text in [*altered_answers(problem.solution).values(), f"{problem.solution}\n{problem.solution}", "", "x"]:
            assert grade(task, problem, text) < 1.0, (problem.solution, text)
        for text in spellings_of(problem.solution).values():
            assert grade(task, problem, text) == 1.0, (problem.solution, text)
    golds = Counter(problem.solution.casefold() for problem in problems)
    for text in (*CONSTANTS, *golds):
        num_paid = sum(grade(task, problem, text) == 1.0 for problem in problems)
        chance = (golds[text.casefold()] + 1) / (len(problems) + 1)
        assert not exceeds_chance(num_paid, len(problems), chance), (text, num_paid)
    lines = [[line for line in p.question.splitlines() if line.casefold() != p.solution.casefold()] for p in problems]
    num_paid = sum(any(grade(task, p, line) == 1.0 for line in own) for p, own in zip(problems, lines, strict=True))
    assert not exceeds_chance(num_paid, len(problems), 1 / (len(problems) + 1)), num_paid


@pytest.mark.parametrize("task", _FAST)
def test_only_solutions_are_paid(task: str) -> None:
    check_task(task)


@pytest.mark.nightly
@pytest.mark.parametrize("task", [task for task in CARD.tasks if task not in _FAST])
def test_only_solutions_of_every_task_are_paid(task: str) -> None:
    check_task(task)


def graded(task: str, change: Any) -> set[float]:
    return {float(grade(task, problem, change(problem.solution)) == 1.0) for problem in solved_problems(task)}


def test_digits_of_decimals_must_be_right() -> None:
    assert graded("decimal_arithmetic", lambda text: str(float(text) + 0.0009)) == {0.0}
    assert graded("decimal_chain_sum", lambda text: str(float(text) + 0.5)) == {0.0}
    assert graded("coin_flip", lambda text: "0") == {0.0}
    assert graded("power_function", lambda text: f"{float(text):.2e}") == {1.0}


@pytest.mark.parametrize("task", ["number_sorting", "number_filtering"])
def test_numbers_of_a_list_must_be_equal_and_need_no_quotes(task: str) -> None:
    assert graded(task, lambda text: text.replace("'", "")) == {1.0}
    problems = [problem for problem in solved_problems(task) if any(digit in problem.solution for digit in "12345678")]
    assert {grade(task, p, p.solution.translate(str.maketrans("12345678", "23456789"))) == 1.0 for p in problems} == {
        False
    }


def test_text_around_an_answer_is_no_answer() -> None:
    days = [p for p in solved_problems("time_intervals") if p.solution.endswith("days")]
    assert not any(grade("time_intervals", p, p.solution.split()[0]) == 1.0 for p in days)
    assert graded("quantum_lock", lambda text: f"a cab: {text}") == {0.0}
    assert graded("sokoban", lambda text: f"x{text}") == {0.0}
    assert graded("fraction_simplification", lambda text: text.replace("$", "").replace("dfrac", "frac")) == {1.0}


def test_clauses_and_factors_may_come_in_another_order() -> None:
    def turn(text: str) -> str:
        return " and ".join(reversed(text.removesuffix(".").replace(", and ", " and ").split(" and ")))

    assert graded("knights_knaves", turn) == {1.0}
    assert graded("prime_factorization", lambda text: " * ".join(reversed(text.split(" × ")))) == {1.0}


_ANY_ORDER = frozenset(("group_anagrams", "palindrome_partitioning", "polynomial_equations", "prime_factorization"))
"""Tasks that ask for no order of the items. The others ask for a sequence, a grid or a sorted list."""


def reversed_items(text: str) -> str | None:
    """Returns an answer that is a list or numbers with separators, with its items in the reverse order."""
    data = data_of(text)
    if isinstance(data, list):
        return json.dumps(data[::-1])
    separator = next((mark for mark in (" × ", ", ", ",", " ") if mark in text), None)
    return None if separator is None else separator.join(reversed(text.split(separator)))


def check_order(task: str) -> None:
    for problem in solved_problems(task):
        turned = reversed_items(problem.solution)
        if turned is not None and forms.common_form(turned) != forms.common_form(problem.solution):
            assert (grade(task, problem, turned) == 1.0) == (task in _ANY_ORDER), (problem.solution, turned)


@pytest.mark.parametrize("task", [*sorted(_ANY_ORDER), "number_sorting", "word_sorting", "spiral_matrix"])
def test_another_order_is_right_where_none_is_asked_for(task: str) -> None:
    check_order(task)


@pytest.mark.nightly
@pytest.mark.parametrize("task", [task for task in CARD.tasks if task not in {*_SEVERAL, *_RULES} | {"knights_knaves"}])
def test_another_order_of_every_task_is_wrong_where_one_is_asked_for(task: str) -> None:
    check_order(task)


def test_24_is_exact() -> None:
    problem = load_problem("puzzle24", 4, {})
    entry = {**problem.entry, "metadata": {**problem.entry["metadata"], "numbers": [3, 7, 1, 10]}}
    changed = Problem(question="", solution="", entry=entry, score=problem.score)
    assert grade("puzzle24", changed, "7*10/3+1") < 1.0, "24.33 is not 24"
