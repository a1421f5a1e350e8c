"""Classes of equal answers of several attempts at one task."""

from __future__ import annotations

import re
from collections.abc import Sequence

from verl_agentic.base.errors import ScoringError
from verl_agentic.base.text.boxes import answer_in_boxes
from verl_agentic.base.text.normal_form import normalise
from verl_agentic.base.text.reasoning import outside_reasoning
from verl_agentic.graders.maths.boxed_math import MAX_ANSWER_CHARS, judge
from verl_agentic.rewards.answers.empty_work import is_empty_box, is_refusal
from verl_agentic.rewards.turns import without_end_tokens

_MAX_CHARS = 2000
_MAX_JUDGED = 8
"""Maximum number of answers that an answer is compared with as an expression."""
_VERDICT_S = 10.0
_MATHS = re.compile(r"[\\\d^=+*/<>√π∞½¼¾]")


async def answer_classes(texts: Sequence[str]) -> list[str]:
    r"""Returns for each text the first equal answer; empty for a text without one.

    Only the content of `\boxed{...}` counts if there is a box; reasoning does not count. Two answers are equal if their
    normal forms are, or if they are equal numbers or expressions for `math`. Each answer is compared as an expression
    with at most 8 others, the first ones.
    """
    answers = [_normalise_answer(text) for text in texts]
    first: dict[str, str] = {"": ""}
    for answer in dict.fromkeys(answers):
        if answer in first:
            continue
        first[answer] = answer
        for other in [text for text in dict.fromkeys(first.values()) if text and text != answer][:_MAX_JUDGED]:
            if await _are_equal(answer, other):
                first[answer] = other
                break
    return [first[answer] for answer in answers]


async def _are_equal(first: str, second: str) -> bool:
    if max(len(first), len(second)) > MAX_ANSWER_CHARS or not (_MATHS.search(first) and _MATHS.search(second)):
        return False
    try:
        return (await judge(first, second, timeout_s=_VERDICT_S)).is_right
    except ScoringError:  # it is not an expression
        return False


def _normalise_answer(text: str) -> str:
    """Returns the answer in the form for comparison; empty if there is none."""
    answer = without_end_tokens(outside_reasoning(text[-_MAX_CHARS:]))
    boxed = answer_in_boxes(answer)
    answer = answer if boxed is None else boxed
    if is_empty_box(answer) or is_refusal(answer):
        return ""
    # Signs and braces of an expression are part of it.
    return " ".join(answer.casefold().split()) if _MATHS.search(answer) else normalise(answer)
