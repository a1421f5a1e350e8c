"""Compares the last boxed answer with the ground truth: plain numbers here, other answers in separate processes.

Large expressions and symbolic algebra take long or do not terminate. So they run in processes (`math_verifiers`) with a
limit on processor time; nothing here hangs or blocks an event loop.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

from verl_agentic.base.errors import DataError, ScoringError
from verl_agentic.base.text.boxes import answer_in_boxes
from verl_agentic.base.text.boxes import last_boxed as last_boxed
from verl_agentic.graders.maths.forms.math_expressions import may_be_product
from verl_agentic.graders.maths.forms.math_notation import tidy
from verl_agentic.graders.maths.forms.math_numbers import PlainNumber, are_equal, read_number
from verl_agentic.graders.maths.forms.math_scalars import plain_text
from verl_agentic.graders.maths.math_choices import are_same_choices, split_choice
from verl_agentic.graders.maths.math_verifiers import VERIFIERS

MAX_ANSWER_CHARS = 512
"""Maximum length of a boxed answer; longer ones are wrong."""
_EQUATION = re.compile(r"(?<![<>!:=\\])=(?!=)")
_NAME = re.compile(r"\\?[A-Za-z]+(?:_\{?\w+\}?)?\s*=(?=[^=]*$)")
_SEVERAL = re.compile(r",(?!\d{3}(?!\d))|;|\\pm|\\mp|\\text|(?<![A-Za-z])(?:and|or|not)(?![A-Za-z])")
_VARIABLE = re.compile(r"\d[A-Za-z]$")
_MAX_TRUTH_WORDS = 8
_ELSEWHERE = re.compile(
    r"(?i:\b(?:see|refer to|shown|given|as) .*\b(?:figure|diagram|graph|picture|table|above|below|solution|text)\b"
    r"|\bproo?f\b|\bprove\b|\bomitted\b|\banswers? (?:may |will |can )?var(?:y|ies)\b|^n/?a$)"
)
_WORDS = re.compile(r"[^\W\d_]+(?:[\s'-]+[^\W\d_]+)*")
_LONG_WORD = re.compile(r"(?<![\\A-Za-z])[^\W\d_]{2,}")
_MATHS_WORDS = frozenset(("infinity", "infty", "inf", "pi"))


@dataclass(frozen=True)
class MathVerdict:
    """The verifier's decision on an answer."""

    is_right: bool
    is_judged: bool = True
    """False if algebra did not finish in time; the answer then counts as wrong."""


def expression_of(ground_truth: Any) -> str:
    """Returns a ground truth as an expression.

    Args:
        ground_truth: text, or a number of Python, numpy or `decimal`; a tensor or array of one number.

    Raises:
        DataError: it is of another type, empty, or `nan`.
    """
    value: Any = ground_truth
    if not isinstance(value, (str, Real, Decimal)) and getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, str) and value.strip():
        return value
    # numpy's booleans are not `Real`
    if not isinstance(value, (Real, Decimal)) or isinstance(value, bool) or math.isnan(value):
        raise DataError(
            f"ground_truth must be a number or a LaTeX expression without a box, got {ground_truth!r}; fix the row"
        )
    if math.isinf(value):
        return r"\infty" if float(value) > 0 else r"-\infty"
    return str(value)


def truth_problem(ground_truth: Any) -> str:
    """Returns why no answer can meet a ground truth, or an empty text."""
    try:
        text = expression_of(ground_truth)
    except DataError as error:
        return str(error)
    truth = tidy(text)
    if len(text) > MAX_ANSWER_CHARS:
        return f"ground_truth has {len(text)} characters, and answers of more than {MAX_ANSWER_CHARS} are wrong"
    if not plain_text(truth):
        return f"ground_truth is empty without its commands, got {text!r}"
    if _ELSEWHERE.search(truth) or len(_LONG_WORD.findall(truth)) > _MAX_TRUTH_WORDS:
        return f"ground_truth must be an answer, got the text {text[:200]!r}; keep only what belongs into the box"
    return ""


async def math_answer(
    answer: str, ground_truth: Any, *, timeout_s: float = 10.0, must_be_evaluated: bool = False
) -> float:
    r"""Returns 1.0 if the last `\boxed{...}` of `answer` is mathematically equal to `ground_truth`, else 0.0.

    Args:
        answer: the policy's final answer; never pass tool output.
        ground_truth: the right answer: LaTeX, a plain expression or a number, without a box.
        timeout_s: deadline, counted from the start of the verification.

    Raises:
        DataError: the ground truth is not an expression.
        ScoringError: the verifier cannot read the ground truth.
    """
    boxed = answer_in_boxes(answer)
    if not boxed:
        return 0.0
    truth = expression_of(ground_truth)
    verdict = await judge(boxed, truth, timeout_s=timeout_s, must_be_evaluated=must_be_evaluated)
    return float(verdict.is_right)


async def judge(answer: str, truth: str, *, timeout_s: float, must_be_evaluated: bool = False) -> MathVerdict:
    r"""Returns whether an answer equals the truth.

    An answer on which algebra does not finish is wrong.

    Args:
        answer: without its box.
        truth: as `expression_of` returns it.
        timeout_s: deadline, counted from the start of the verification.
        must_be_evaluated: requires an evaluated answer. If the truth is a number, the answer must be a number: digits,
            a fraction in lowest terms, a mixed number, `4.08\times10^{2}`, `4.08e2`, with or without a unit, also after
            an equals sign. `12\times34`, `84/2`, `2^{10}` and `\sqrt{16}` are rejected. Other answers must not contain
            arithmetic on numbers alone.

    Raises:
        ScoringError: the verifier cannot read the truth, or failed.
    """
    if len(answer) > MAX_ANSWER_CHARS:
        return MathVerdict(is_right=False)
    return await _judge_tidy(tidy(answer), tidy(truth), timeout_s=timeout_s, must_be_evaluated=must_be_evaluated)


async def _judge_tidy(answer: str, truth: str, *, timeout_s: float, must_be_evaluated: bool) -> MathVerdict:
    quick = _quick_verdict(answer, truth, must_be_evaluated=must_be_evaluated)
    if quick is not None:
        return MathVerdict(is_right=quick)
    if are_same_choices(answer, truth):
        return MathVerdict(is_right=True)
    (letter, text), (truths_letter, truths_text) = split_choice(answer), split_choice(truth)
    if letter and truths_letter and letter != truths_letter:
        return MathVerdict(is_right=False)
    if truths_letter and not (text and truths_text) and (letter or not truths_text):
        return MathVerdict(is_right=bool(letter))
    if (letter and text) or truths_text != truth:
        return await _judge_tidy(
            tidy(text), tidy(truths_text), timeout_s=timeout_s, must_be_evaluated=must_be_evaluated
        )
    if problem := truth_problem(truth):
        raise ScoringError(f"no answer can meet the ground truth: {problem}; fix the row")
    is_right = await VERIFIERS.verdict(answer, truth, timeout_s=timeout_s, must_be_evaluated=must_be_evaluated)
    if is_right is not None:
        return MathVerdict(is_right=is_right)
    # Checks whether the truth itself is the cause.
    if await VERIFIERS.verdict("1", truth, timeout_s=timeout_s, must_be_evaluated=False) is None:
        raise ScoringError(
            f"the verifier must be able to read the ground truth, got no verdict on {truth[:180]!r}; fix the row"
        )
    return MathVerdict(is_right=False, is_judged=False)


def _quick_verdict(answer: str, truth: str, *, must_be_evaluated: bool) -> bool | None:
    """Returns a verdict if none of it needs algebra, else None."""
    if not answer:
        return False
    if answer == truth:
        return True
    if _WORDS.fullmatch(truth) and _WORDS.fullmatch(answer) and not _is_maths(truth):
        return _split_words(answer) == _split_words(truth) or are_same_choices(answer, truth)
    truth_number = _read_assigned_number(truth)
    if truth_number is None or _VARIABLE.search(truth):
        return None
    answer_numbers = _stated_numbers(answer, of=truth)
    if answer_numbers:
        is_evaluated = answer_numbers[-1].is_evaluated or not must_be_evaluated
        return is_evaluated and all(are_equal(number, truth_number) for number in answer_numbers)
    return False if must_be_evaluated else None


def _read_assigned_number(text: str) -> PlainNumber | None:
    r"""Returns the number, also from an assignment such as `x = 408`."""
    return read_number(tidy(_NAME.sub("", text)))


def _stated_numbers(answer: str, *, of: str) -> list[PlainNumber]:
    r"""Returns the numbers that an answer equates, the result last; empty if the result is not a plain number.

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


def _is_maths(words: str) -> bool:
    return may_be_product(words.replace(" ", "")) or words.casefold() in _MATHS_WORDS


def _split_words(text: str) -> list[str]:
    return text.casefold().replace("-", " ").split()
