"""Is the last boxed answer equal to the ground truth? Numbers are compared here, the rest by math-verify.

A model can write expressions on which symbolic algebra never ends. So algebra runs in processes of its own
(`math_verifiers`), each with a limit of processor time; nothing here hangs, leaks or blocks an event loop.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from numbers import Real
from typing import Any

from verl_agentic.errors import DataError, ScoringError
from verl_agentic.rewards.answers.math_notation import tidy
from verl_agentic.rewards.answers.math_numbers import PlainNumber, are_equal, read_number
from verl_agentic.rewards.answers.math_verifiers import VERIFIERS

MAX_ANSWER_CHARS = 512
"""A longer boxed answer counts as wrong without a look."""
_BRACES = re.compile(r"(?:\\boxed)?\{|\}")
_EQUATION = re.compile(r"(?<![<>!:=\\])=(?!=)")
_NAME = re.compile(r"\\?[A-Za-z]+(?:_\{?\w+\}?)?\s*=(?=[^=]*$)")
_SEVERAL = re.compile(r",(?!\d{3}(?!\d))|;|\\pm|\\mp|\\text|(?<![A-Za-z])(?:and|or|not)(?![A-Za-z])")
_VARIABLE = re.compile(r"\d[A-Za-z]$")
_WORDS = re.compile(r"[^\W\d_]+(?:[\s'-]+[^\W\d_]+)*")
_MATHS_WORDS = frozenset(("infinity", "infty", "inf", "pi"))


@dataclass(frozen=True)
class MathVerdict:
    """What the verifier says of an answer."""

    is_right: bool
    is_judged: bool = True
    """False when algebra could not finish the answer, which then counts as wrong."""


def last_boxed(text: str) -> str | None:
    r"""Returns what stands in the last complete `\boxed{...}` of `text`, or None; linear time on any text."""
    start, end = -1, -1
    opened: list[tuple[int, bool]] = []
    for brace in _BRACES.finditer(text):
        if brace[0] != "}":
            opened.append((brace.end(), len(brace[0]) > 1))
        elif opened:
            inside, is_box = opened.pop()
            if is_box and inside > start:
                start, end = inside, brace.start()
    return text[start:end].strip() if start >= 0 else None


def expression_of(ground_truth: Any) -> str:
    """Returns a ground truth as an expression.

    Args:
        ground_truth: text, or a number of Python, numpy or `decimal`; a tensor or array of one number.

    Raises:
        DataError: it is something else, empty, or not a number (`nan`).
    """
    value: Any = ground_truth
    if not isinstance(value, (str, Real, Decimal)) and getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, str) and value.strip():
        return value
    # numpy's booleans are no Real
    if not isinstance(value, (Real, Decimal)) or isinstance(value, bool) or math.isnan(value):
        raise DataError(
            f"ground_truth must be a number or an expression in LaTeX, without a box, got {ground_truth!r}; fix the row"
        )
    if math.isinf(value):
        return r"\infty" if float(value) > 0 else r"-\infty"
    return str(value)


async def math_answer(
    answer: str, ground_truth: Any, *, timeout_s: float = 10.0, must_be_evaluated: bool = False
) -> float:
    r"""Returns 1.0 when the last `\boxed{...}` of `answer` is mathematically equal to `ground_truth`, else 0.0.

    Args:
        answer: what the policy wrote as its final answer; never pass tool output.
        ground_truth: the right answer, as LaTeX, a plain expression or a number, without a box.
        timeout_s: deadline of the verdict, from when a verifier has taken it up.
        must_be_evaluated: see `judge`.

    Raises:
        DataError: the ground truth is no expression.
        ScoringError: the verifier cannot read the ground truth.
    """
    boxed = last_boxed(answer)
    if not boxed:
        return 0.0
    truth = expression_of(ground_truth)
    verdict = await judge(boxed, truth, timeout_s=timeout_s, must_be_evaluated=must_be_evaluated)
    return float(verdict.is_right)


async def judge(answer: str, truth: str, *, timeout_s: float, must_be_evaluated: bool = False) -> MathVerdict:
    r"""Returns whether an answer equals the truth.

    An answer that algebra cannot finish is wrong: it is the policy's doing.

    Args:
        answer: without its box.
        truth: as `expression_of` returns it.
        timeout_s: deadline of the verdict, from when a verifier has taken it up.
        must_be_evaluated: the answer must leave no step to the reader. Where the truth is a number, the answer must be
            a number written out: digits, a fraction in lowest terms, a mixed number, `4.08\times10^{2}`, `4.08e2`, with
            or without a unit; behind an equals sign, too. `12\times34`, `84/2`, `2^{10}` and `\sqrt{16}` are none.
            In other answers no part made of numbers alone may be left to calculate.

    Raises:
        ScoringError: the verifier cannot read the truth, or failed.
    """
    if len(answer) > MAX_ANSWER_CHARS:
        return MathVerdict(is_right=False)
    answer, truth = tidy(answer), tidy(truth)
    quick = _quick_verdict(answer, truth, must_be_evaluated=must_be_evaluated)
    if quick is not None:
        return MathVerdict(is_right=quick)
    is_right = await VERIFIERS.verdict(answer, truth, timeout_s=timeout_s, must_be_evaluated=must_be_evaluated)
    if is_right is not None:
        return MathVerdict(is_right=is_right)
    # Whose doing is it?
    if await VERIFIERS.verdict("1", truth, timeout_s=timeout_s, must_be_evaluated=False) is None:
        raise ScoringError(
            f"math-verify must be able to read the ground truth, got no verdict on {truth[:200]!r} in time; fix the row"
        )
    return MathVerdict(is_right=False, is_judged=False)


def _quick_verdict(answer: str, truth: str, *, must_be_evaluated: bool) -> bool | None:
    """Returns the verdict that needs no algebra, or None."""
    if not answer:
        return False
    if answer == truth:
        return True
    if _WORDS.fullmatch(truth) and _WORDS.fullmatch(answer) and not _may_be_product(truth):
        return _words(answer) == _words(truth)
    wanted = _number(truth)
    if wanted is None or _VARIABLE.search(truth):
        return None
    given = _stated_numbers(answer, of=truth)
    if given:
        is_evaluated = given[-1].is_evaluated or not must_be_evaluated
        return is_evaluated and all(are_equal(number, wanted) for number in given)
    return False if must_be_evaluated else None


def _number(text: str) -> PlainNumber | None:
    r"""Returns a number, or the one that a name is said to be: `x = 408`."""
    return read_number(tidy(_NAME.sub("", text)))


def _stated_numbers(answer: str, *, of: str) -> list[PlainNumber]:
    r"""Returns the numbers that an answer says are equal, the last one its result; none where that is no plain number.

    `12 \times 34 = 408` and `408 = x` give 408, `41 = 42` gives both.
    """
    name, truths_name = _NAME.match(answer), _NAME.match(of)
    if name and truths_name and name[0].split() != truths_name[0].split():
        return []
    sides = [answer] if _SEVERAL.search(answer) else _EQUATION.split(answer)
    if len(sides) == 2 and re.fullmatch(r"\s*[A-Za-z]\s*", sides[1]):
        sides.reverse()
    numbers = [read_number(tidy(side)) for side in sides]
    return [number for number in numbers if number] if numbers[-1] else []


def _words(text: str) -> list[str]:
    return text.casefold().replace("-", " ").split()


def _may_be_product(text: str) -> bool:
    """Tells whether letters may stand for numbers: `ab` and `xyz`, but not `yes`."""
    letters = text.replace(" ", "")
    is_run = all(ord(right) - ord(left) == 1 for left, right in pairwise(letters))
    is_short = len(letters) < 3 and letters.casefold() not in ("no", "on")
    return is_short or (is_run and len(letters) > 2) or text.casefold() in _MATHS_WORDS
