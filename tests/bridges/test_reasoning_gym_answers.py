"""reasoning_gym: for every generator, solutions in other spellings are right, and altered ones or guesses are wrong."""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from verl_agentic.bridges.reasoning_gym import CARD
from verl_agentic.bridges.reasoning_gym import answer_forms as forms
from verl_agentic.bridges.reasoning_gym.answer_forms import data_of
from verl_agentic.bridges.reasoning_gym.grading import _CASE_COUNTS, _RULES, _SEVERAL, grade
from verl_agentic.bridges.reasoning_gym.problems import Problem, load_problem
from verl_agentic.evaluate.env_validation.answer_checks import CONSTANTS, exceeds_chance
from verl_agentic.graders.answers.gold_answers import altered_answers, spellings_of

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


@pytest.mark.sample(1)
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


@pytest.mark.slow
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


def replaced(*pairs: tuple[str, str]) -> Callable[[Problem], str]:
    return lambda problem: functools.reduce(lambda text, pair: text.replace(*pair), pairs, problem.solution)


def fraction_of(problem: Problem) -> str:
    ratio = problem.entry["metadata"]["rational"]
    return f"{ratio['numerator']}/{ratio['denominator']}"


def next_decimal(problem: Problem) -> str:
    number = Decimal(problem.solution)
    return f"{number + Decimal(1).scaleb(number.adjusted() - 11):f}"


def turned_palindrome(problem: Problem) -> str:
    text = problem.solution
    half, end = text[: len(text) // 2], text[(len(text) + 1) // 2 :]
    return half[::-1] + text[len(half) : len(text) - len(end)] + end[::-1]


def turned_terms(problem: Problem) -> str:
    return " + ".join(reversed(problem.solution.replace(" - ", " + -").split(" + ")))


_OTHER_SOLUTIONS: dict[str, Callable[[Problem], str]] = {
    "advanced_geometry": replaced(("°", "")),
    "bitwise_arithmetic": lambda problem: problem.solution.replace("0x", "").upper(),
    "coin_flip": fraction_of,
    "complex_arithmetic": replaced((" ", "")),
    "countdown": lambda problem: f"({problem.solution})",
    "cryptarithm": lambda problem: ",".join(reversed(problem.solution.split(","))),
    "decimal_arithmetic": next_decimal,
    "graph_color": replaced((": 1", ": 0"), (": 2", ": 1"), (": 0", ": 2")),
    "intermediate_integration": replaced(("C", "7")),
    "jugs": lambda problem: '["fill A", "empty A", ' + problem.solution[1:],
    "n_queens": lambda problem: problem.entry["metadata"]["valid_answers"][-1],
    "number_format": lambda problem: f"{Decimal(problem.solution):E}",
    "palindrome_generation": turned_palindrome,
    "polynomial_multiplication": turned_terms,
    "pool_matrix": lambda problem: re.sub(r"(\.\d)\b", r"\g<1>0", problem.solution),
    "quantum_lock": replaced((" → ", " ")),
    "rubiks_cube": lambda problem: f"{problem.solution} U U'",
    "simple_integration": replaced(("C", "7")),
    "time_intervals": lambda problem: re.sub(r"\b0(\d:)", r"\1", problem.solution.replace("days", "day")),
    "tower_of_hanoi": replaced(("Move", "move"), ("\n", ".\n")),
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("task", sorted(_OTHER_SOLUTIONS))
def test_other_solutions_are_right(task: str) -> None:
    solved = solved_problems(task)
    others = [_OTHER_SOLUTIONS[task](problem) for problem in solved]
    assert {grade(task, problem, other) for problem, other in zip(solved, others, strict=True)} == {1.0}
    assert any(other != problem.solution for problem, other in zip(solved, others, strict=True))


def test_a_detour_of_sokoban_is_right() -> None:
    for problem in solved_problems("sokoban"):
        answers = (f"{there}{back}{problem.solution}" for there, back in ("UD", "DU", "LR", "RL"))
        assert any(grade("sokoban", problem, answer) == 1.0 for answer in answers)


@pytest.mark.sample(1)
@pytest.mark.parametrize("task", sorted(_CASE_COUNTS))
def test_capitals_count_where_a_text_is_asked_for(task: str) -> None:
    pairs = [(problem, problem.solution.swapcase()) for problem in solved_problems(task)]
    assert pairs and all(grade(task, problem, text) < 1.0 for problem, text in pairs if text != problem.solution)


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


@pytest.mark.sample(3)
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
