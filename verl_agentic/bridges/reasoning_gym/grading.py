"""Grades answers of reasoning-gym: by comparison with the solution, and with the package's grader where it is needed.

The graders of the package often give full score to text around an answer, to a prefix or to digits that are wrong.
So an answer is right if it has the normal form of the solution. Where a problem has several solutions, the package's
grader decides about answers that have the form of a solution.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from decimal import Decimal
from fractions import Fraction

from verl_agentic.base.errors import is_infrastructure

from . import answer_forms as forms
from .problems import Problem

MAX_ANSWER_CHARS = 8_192
"""Longer answers are wrong; no solution is as long, and some graders take long."""
_MAX_EXPRESSION_CHARS = 512
_SUM = re.compile(r"[\d\s+\-*/()]+")
_NAMES = r"\b(?:[a-zA-Z]|sin|cos|tan|sec|csc|cot|sinh|cosh|tanh|asin|acos|atan|exp|log|ln|sqrt|pi)\b"
_EXPRESSION = re.compile(rf"(?:{_NAMES}|\b\d+(?:\.\d+)?|[\s+\-*/(),])+")
_LARGE_POWER = re.compile(r"\*\*\s*(?:\d{3}|[^\d\s(]|\([^)]{8}|\S+\s*\*\*)|(?:\)\s*\*\*.*){3}", re.DOTALL)
_HANOI_MOVE = re.compile(r"move disk (\d+) from peg (\d+) to peg (\d+)\.?", re.I)


def grade(task: str, problem: Problem, answer: str) -> float:
    """Returns the score of an answer, 0 to 1; only 1 is a solved problem.

    An answer on which the grader raises is wrong. Errors of the infrastructure pass.
    """
    answer = answer.strip()
    if not answer or len(answer) > MAX_ANSWER_CHARS:
        return 0.0
    try:
        if _is_right(task, problem, answer):
            return 1.0
        score = 0.0 if task in _RUNS_ANSWERS else problem.score(answer)
        return score if 0 < score < 1 else 0.0  # full score for a wrong answer is no partial credit
    except Exception as cause:
        if is_infrastructure(cause):
            raise
        return 0.0


def _is_right(task: str, problem: Problem, answer: str) -> bool:
    if task in _RULES:
        return _RULES[task](problem, answer)
    if task in _SEVERAL:
        spelling = _SEVERAL[task](problem, answer)
        return spelling is not None and problem.score(spelling) >= 1.0
    form = _FORMS.get(task, forms.common_form)
    if task not in _CASE_COUNTS:
        answer, solution = answer.casefold(), problem.solution.casefold()
    else:
        solution = problem.solution
    answer_form = form(answer)
    return answer_form is not None and answer_form == form(solution)


_FORMS: Mapping[str, Callable[[str], Hashable]] = {
    "bitwise_arithmetic": forms.hexadecimal,
    "complex_arithmetic": forms.complex_form,
    "fraction_simplification": forms.fraction_form,
    "group_anagrams": forms.any_order,
    "knights_knaves": forms.clauses,
    "number_filtering": forms.list_of_numbers,
    "number_format": lambda text: forms.number_of(text, is_scientific=True),
    "number_sorting": forms.list_of_numbers,
    "palindrome_partitioning": forms.lists_in_any_order,
    "prime_factorization": forms.factors,
    "time_intervals": forms.duration,
}
"""Normal form of tasks with one solution; `common_form` for others."""
_CASE_COUNTS = frozenset(("codeio", "emoji_mystery", "letter_jumble", "word_sequence_reversal", "word_sorting"))
"""Tasks that ask for a text with its capitals, or sort by them."""


def _is_target(problem: Problem, answer: str, *, target: int) -> bool:
    """Returns whether a sum uses the numbers of the question and has the value."""
    numbers = sorted(problem.entry["metadata"]["numbers"])
    is_sum = len(answer) <= _MAX_EXPRESSION_CHARS and "**" not in answer and _SUM.fullmatch(answer) is not None
    return is_sum and sorted(map(int, re.findall(r"\d+", answer))) == numbers and forms.value_of_sum(answer) == target


def _is_probability(problem: Problem, answer: str) -> bool:
    """Returns whether a decimal has four digits right, also in relation to 0 and 1, or a fraction is exact."""
    ratio = problem.entry["metadata"]["rational"]
    exact = Fraction(ratio["numerator"], ratio["denominator"])
    fraction, number = forms.fraction_form(answer), forms.number_of(answer)
    if isinstance(fraction, tuple):
        return fraction[1] != 0 and Fraction(*fraction) == exact
    limit = min(Fraction(1, 10_000), min(exact, 1 - exact) / 1_000)
    return number is not None and abs(Fraction(number) - exact) <= limit


def _has_12_digits(problem: Problem, answer: str) -> bool:
    """Returns whether a decimal differs by one unit of the twelfth digit at most: how halves are rounded."""
    number, solution = forms.number_of(answer), Decimal(problem.solution)
    return number is not None and abs(number - solution) <= Decimal(1).scaleb(solution.adjusted() - 11)


def _has_3_digits(problem: Problem, answer: str) -> bool:
    number = forms.number_of(answer, is_scientific=True)
    return number is not None and f"{number:.2e}" == f"{Decimal(problem.solution):.2e}"


def _is_measure(problem: Problem, answer: str) -> bool:
    """Returns whether an angle, a point or a radius rounds to the solution."""
    pairs = [_read_measures(text) for text in (answer, problem.solution)]
    if None in pairs or len(pairs[0] or ()) != len(pairs[1] or ()):
        return False
    return all(abs(a - b) <= _half_unit(b, min_places=2) for a, b in zip(pairs[0] or (), pairs[1] or (), strict=True))


def _read_measures(text: str) -> list[Decimal] | None:
    text = forms.plain(text)
    if re.fullmatch(r"\([^()]*\)", text):
        return forms.numbers_of(text[1:-1])
    return forms.numbers_of(text.removesuffix("°").strip(), separator=";")


def _half_unit(number: Decimal, *, min_places: int) -> Decimal:
    """Returns half a unit of the last place of a number that has at least so many places."""
    exponent = number.as_tuple().exponent
    places = max(min_places, -exponent if isinstance(exponent, int) else 0)
    return Decimal(5).scaleb(-places - 1)


def _has_roots(problem: Problem, answer: str) -> bool:
    """Returns whether all roots are there, in any order, to four places (the question's rounding is ambiguous)."""
    roots, solution = forms.numbers_of(answer), forms.numbers_of(problem.solution)
    if roots is None or solution is None or len(roots) != len(solution):
        return False
    return all(abs(a - b) <= Decimal("0.0001") for a, b in zip(sorted(roots), sorted(solution), strict=True))


def _is_pooled(problem: Problem, answer: str) -> bool:
    """Returns whether a matrix has the exact means to two places; halves may be rounded either way."""
    rows = [forms.numbers_of(line, separator=" ") for line in forms.plain(answer).splitlines()]
    exact = problem.entry["metadata"]["solution"]
    if len(rows) != len(exact) or any(row is None or len(row) != len(e) for row, e in zip(rows, exact, strict=True)):
        return False
    pairs = ((a, b) for row, means in zip(rows, exact, strict=True) for a, b in zip(row or (), means, strict=True))
    return all(abs(float(a) - b) <= 0.005 + 1e-9 for a, b in pairs)


def _is_a_placement(problem: Problem, answer: str) -> bool:
    return forms.plain(answer) in map(forms.plain, problem.entry["metadata"]["valid_answers"])


_RULES: Mapping[str, Callable[[Problem, str], bool]] = {
    "advanced_geometry": _is_measure,
    "coin_flip": _is_probability,
    "countdown": lambda problem, answer: _is_target(problem, answer, target=problem.entry["metadata"]["target"]),
    "decimal_arithmetic": _has_12_digits,
    "n_queens": _is_a_placement,
    "polynomial_equations": _has_roots,
    "pool_matrix": _is_pooled,
    "power_function": _has_3_digits,
    "puzzle24": lambda problem, answer: _is_target(problem, answer, target=24),
}
"""Whether an answer is right, for tasks that allow several answers or digits."""


def _read_expression(problem: Problem, answer: str) -> str | None:
    is_safe = _EXPRESSION.fullmatch(answer) is not None and _LARGE_POWER.search(answer) is None
    return answer if is_safe and len(answer) <= _MAX_EXPRESSION_CHARS else None


def _read_expansion(problem: Problem, answer: str) -> str | None:
    return None if "(" in answer else _read_expression(problem, answer)


def _read_coloring(problem: Problem, answer: str) -> str | None:
    data = forms.data_of(answer)
    vertices = set(map(str, problem.entry["metadata"]["possible_answer"]))
    is_map = isinstance(data, dict) and set(data) == vertices and all(type(color) is int for color in data.values())
    return answer if is_map else None


def _make_moves_reader(pattern: str) -> Callable[[Problem, str], str | None]:
    """Returns a reader of JSON lists whose items all match."""

    def read(problem: Problem, answer: str) -> str | None:
        data = forms.data_of(answer)
        is_list = isinstance(data, list) and all(isinstance(i, str) and re.fullmatch(pattern, i) for i in data)
        return answer if is_list or answer.casefold() == problem.solution.casefold() else None

    return read


def _make_text_reader(pattern: str, *, upper: bool = True) -> Callable[[Problem, str], str | None]:
    """Returns a reader of texts without needless spaces that match, in capitals or without any."""

    def read(problem: Problem, answer: str) -> str | None:
        text = forms.plain(answer.upper() if upper else answer.lower())
        return text if re.fullmatch(pattern, text) else None

    return read


def _read_mapping(problem: Problem, answer: str) -> str | None:
    text = _make_text_reader(r"[A-Z] ?= ?\d(?:,[A-Z] ?= ?\d)*")(problem, answer)
    return text if text is not None and text.count("=") == problem.solution.count("=") else None


def _read_hanoi_moves(problem: Problem, answer: str) -> str | None:
    moves = [_HANOI_MOVE.fullmatch(line) for line in forms.plain(answer).splitlines()]
    if None in moves:
        return None
    return "\n".join("Move disk {} from Peg {} to Peg {}".format(*move.groups()) for move in moves if move)


_SEVERAL: Mapping[str, Callable[[Problem, str], str | None]] = {
    "cryptarithm": _read_mapping,
    "graph_color": _read_coloring,
    # sympy.parse_expr is eval. Besides, an Integral(...) answers every integral, and 9**9**9 takes for ever.
    "intermediate_integration": _read_expression,
    "jugs": _make_moves_reader(r"(?:fill|empty) [A-Z]|pour [A-Z]->[A-Z]"),
    "kakurasu": _make_text_reader(r"[01](?:[ \n][01])*"),
    "knight_swap": _make_moves_reader(r"[wB],[A-Z]\d+,[A-Z]\d+"),
    "palindrome_generation": _make_text_reader(r"[a-z]+", upper=False),
    "polynomial_multiplication": _read_expansion,
    "quantum_lock": _make_text_reader(r"[A-C](?: ?(?:→|->|,)? ?[A-C])*"),
    "rubiks_cube": _make_text_reader(r"[UDLRFB]'?(?: [UDLRFB]'?)*"),
    "shortest_path": _make_text_reader(r"infeasible|(?:up|down|left|right)(?: (?:up|down|left|right))*", upper=False),
    "simple_integration": _read_expression,
    "sokoban": _make_text_reader(r"[UDLR]+"),
    "tower_of_hanoi": _read_hanoi_moves,
    "word_ladder": _make_text_reader(r"[A-Z]+(?:,[A-Z]+)+"),
}
"""Answer as the package's grader reads it, or None without the form of a solution; for tasks with several solutions."""
_RUNS_ANSWERS = frozenset(
    (
        "binary_matrix", "countdown", "intermediate_integration", "n_queens", "polynomial_multiplication", "puzzle24",
        "simple_integration", "spiral_matrix", "string_insertion",
    )
)  # fmt: skip
"""Tasks whose grader runs the answer as Python, so that a wrong answer never reaches it."""
