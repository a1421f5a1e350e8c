"""Check: outcomes of right and wrong answers."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from verl_agentic.base.errors import DataError
from verl_agentic.base.finding import Finding, unknown
from verl_agentic.base.text.normal_form import normalise
from verl_agentic.observe.diagnosis.check import record_check
from verl_agentic.observe.diagnosis.row_keys import key_of
from verl_agentic.rewards.answers.short_answers import golden_answers_of

if TYPE_CHECKING:
    from verl_agentic.observe.diagnosis.evidence import RunEvidence

_MIN_ANSWERS = 8
_MIN_WRONG = 0.3
"""Minimum share of answers that look wrong. Fewer may be other forms of right answers."""
_PAID = 0.8
"""Mean outcome of wrong answers from which on the grader does not look at them."""
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:/\d+)?(?![\w])")
_ADVICE = (
    "read some of these episodes, and test the grader on wrong answers: `verl-agentic reward audit`, "
    "`verl-agentic env validate`; check that it compares the answer with ground_truth"
)


@record_check
def grader(run: RunEvidence) -> Finding:
    """Returns the mean outcome of answers with the ground truth in them, and of answers without it."""
    judged = [(record, is_right) for record in run.sample if (is_right := _is_right(record)) is not None]
    if len(judged) < _MIN_ANSWERS:
        return unknown("no final answers with a ground truth to compare with")
    right, wrong = ([float(r["acc"]) for r, is_right in judged if is_right == kind] for kind in (True, False))
    message = f"{len(right)} answers with the ground truth have a mean outcome of {_compute_mean(right):.2g}, "
    message += f"{len(wrong)} without it {_compute_mean(wrong):.2g}"
    evidence = {"right": _compute_mean(right), "wrong": _compute_mean(wrong), "wrong_share": len(wrong) / len(judged)}
    # Where no answer has it, the ground truth is not the text of an answer.
    is_blind = right and len(wrong) >= max(_MIN_ANSWERS, _MIN_WRONG * len(judged)) and _compute_mean(wrong) >= _PAID
    if not is_blind:
        return Finding(status="ok", found=message, evidence=evidence)
    paid = [key_of(record) for record, is_right in judged if not is_right and record["acc"] >= _PAID]
    message = f"the grader gives wrong answers the outcome of right ones: {message}"
    return Finding(status="fail", found=message, advice=_ADVICE, evidence=evidence, look_at=tuple(paid[:2]))


def _compute_mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _is_right(record: Mapping[str, Any]) -> bool | None:
    """Returns whether the final answer has the ground truth in it; None if one of them is not a text or a number."""
    answer, acc = record.get("final_answer") or "", record.get("acc")
    if record["place"] != "last" or not answer.strip() or acc is None:
        return None
    try:
        truth = json.loads(record.get("ground_truth") or "null")
        truths = [text for text in golden_answers_of(str(truth) if _is_number(truth) else truth) if text.strip()]
    except (ValueError, DataError):  # no JSON, or no text of an answer
        return None
    if not truths:
        return None
    numbers = {_parse_number(text) for text in _NUMBER.findall(answer.replace(",", ""))}
    text = normalise(answer)
    return any(
        _parse_number(truth) in numbers if _parse_number(truth) is not None else normalise(truth) in text
        for truth in truths
    )


def _is_number(truth: Any) -> bool:
    return isinstance(truth, int | float) and not isinstance(truth, bool)


def _parse_number(text: str) -> float | None:
    """Returns the value of a number or a fraction; None for other texts."""
    over, _, under = text.replace(",", "").strip().partition("/")
    try:
        return round(float(over) / float(under or 1), 6)
    except (ValueError, ZeroDivisionError):
        return None
