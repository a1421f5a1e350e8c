"""Right answers of rows, equivalent rewritings, and wrong answers derived from them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from verl_agentic.base.errors import DataError
from verl_agentic.base.text.normal_form import normalise
from verl_agentic.rewards.answers.short_answers import golden_answers_of

Family = Literal["math", "qa"]
FAMILIES: Mapping[str, Family] = {
    **dict.fromkeys(("math", "retool", "reft"), "math"),
    **dict.fromkeys(("exact_match", "f1", "search_r1"), "qa"),
}
"""Component -> kind of comparison; for other components it is measured."""
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d{1,6})?")
_WORDS = re.compile(r"[^\W\d_]+(?:[ '-][^\W\d_]+)*")
_MIN_TRUNCATED_CHARS = 4
_FEW_WORDS = frozenset(
    ("yes", "no", "true", "false", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
)


@dataclass(frozen=True, kw_only=True)
class WrongAnswer:
    """An answer that must not be accepted."""

    kind: str
    """`other`, `digits`, `negated`, `truncated` or `empty`."""
    text: str
    is_near: bool
    """Whether it shares words with the right answer, so that partial credit is fine."""


def gold_of(ground_truth: Any) -> tuple[str, ...]:
    """Returns the right answers of a ground truth as texts; empty for other kinds, such as tests."""
    if isinstance(ground_truth, (int, float)) and not isinstance(ground_truth, bool):
        return (str(ground_truth),)
    if isinstance(ground_truth, str) and _is_structure(ground_truth):
        return ()
    try:
        return golden_answers_of(ground_truth)
    except DataError:
        return ()


def wrong_answers(gold: Sequence[str], others: Sequence[str]) -> list[WrongAnswer]:
    """Returns answers derived from a row's right ones that are certainly wrong.

    Args:
        gold: the right answers of the row.
        others: right answers of other rows.
    """
    answer = gold[0].strip()
    answers = [WrongAnswer(kind="empty", text="", is_near=False)]
    if (other := next((o for o in others if _is_unrelated(o, gold)), None)) is not None:
        answers.append(WrongAnswer(kind="other", text=other, is_near=False))
    near = {"digits": _change_digits(answer), "negated": _negate_answer(answer), "truncated": _truncate_answer(answer)}
    answers += [
        WrongAnswer(kind=kind, text=text, is_near=True)
        for kind, text in near.items()
        if text is not None and not any(_is_same(text, right) for right in gold)
    ]
    return answers


def altered_answers(answer: str) -> dict[str, str]:
    """Returns kind -> a wrong answer that holds a right one."""
    number = _NUMBER.match(answer)
    is_zero = number is not None and float(number[0]) == 0  # `-0.0, 1.5` is `0.0, 1.5`
    altered = {
        "extended": f"{answer} or something else",
        "prefixed": f"It is false that {answer}",
        **({} if is_zero else {"negated": _negate_answer(answer) or f"-{answer}"}),
    }
    return {kind: text for kind, text in altered.items() if not _is_same(text, answer)}


def spellings_of(answer: str) -> dict[str, str]:
    """Returns kind -> the same answer as it is, with other spaces, and in another case where a word is one of few."""
    spellings = {"as it is": answer, "with spaces around": f" {answer} "}
    if answer[:1] in ("[", "{", "("):
        spellings["without spaces"] = answer.replace(", ", ",")
    if answer.casefold() in _FEW_WORDS:
        spellings["in the other case"] = answer.lower() if answer != answer.lower() else answer.capitalize()
    return spellings


def rewritings(answer: str, family: Family) -> list[str]:
    """Returns equivalent answers: other forms of a number, or other case, articles and spaces of words."""
    answer = answer.strip()
    if family == "qa":
        return [answer.upper(), f"  The {answer}. "]
    if not _NUMBER.fullmatch(answer):
        return [f" {answer} "]
    if "." in answer:
        return [f"{answer}0"]
    return [f"{answer}.0", rf"\frac{{{2 * int(answer)}}}{{2}}"]


def _is_structure(text: str) -> bool:
    """Returns whether a text is data or markup, such as expected calls or tests."""
    if text.lstrip().startswith("<"):
        return True
    try:
        return isinstance(json.loads(text), (dict, list))
    except ValueError:
        return False


def _is_same(text: str, right: str) -> bool:
    if _NUMBER.fullmatch(text) and _NUMBER.fullmatch(right.strip()):
        return float(text) == float(right)
    return not normalise(text) or normalise(text) == normalise(right)


def _is_unrelated(other: str, gold: Sequence[str]) -> bool:
    """Returns whether an answer is certainly wrong, without partial credit."""
    other = other.strip()
    if _NUMBER.fullmatch(other):
        return all(_NUMBER.fullmatch(right.strip()) and float(right) != float(other) for right in gold)
    words = set(normalise(other).split())
    return bool(_WORDS.fullmatch(other) and words) and all(
        _WORDS.fullmatch(right.strip()) and not words & set(normalise(right).split()) for right in gold
    )


def _change_digits(answer: str) -> str | None:
    """Returns an answer with another first digit, never a leading 0."""
    changed = re.sub(r"\d", lambda match: str(int(match[0]) % 9 + 1), answer, count=1)
    return None if changed == answer else changed


def _negate_answer(answer: str) -> str | None:
    if _NUMBER.fullmatch(answer):
        return answer.removeprefix("-") if answer.startswith("-") else f"-{answer}"
    if answer.casefold() in ("yes", "no"):
        return "no" if answer.casefold() == "yes" else "yes"
    return f"not {answer}" if _WORDS.fullmatch(answer) else None


def _truncate_answer(answer: str) -> str | None:
    if _NUMBER.fullmatch(answer):
        return answer[:-1] if answer[:-1].strip("-0.") else None
    is_long = _WORDS.fullmatch(answer) and len(answer) >= _MIN_TRUNCATED_CHARS
    return answer[: (len(answer) + 1) // 2].strip() if is_long else None
