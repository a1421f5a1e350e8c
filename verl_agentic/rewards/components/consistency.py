"""Uses the majority answer of a group as the ground truth."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from verl_agentic.errors import ScoringError
from verl_agentic.rewards.answers.boxed_math import MAX_ANSWER_CHARS, judge, last_boxed
from verl_agentic.rewards.component import component
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.text.empty_work import is_empty_box, is_refusal
from verl_agentic.rewards.text.normal_form import normalise
from verl_agentic.rewards.text.reasoning import outside_reasoning
from verl_agentic.rewards.text.turn_texts import without_end_tokens

Form = Literal["majority", "share"]
_MAX_CHARS = 2000
_MAX_JUDGED = 8
"""Maximum number of answers that an answer is compared with as an expression."""
_VERDICT_S = 10.0
_MATHS = re.compile(r"[\\\d^=+*/<>√π∞½¼¾]")


@component(kind="outcome", scope="group")
async def consistency(samples: Sequence[Sample], *, form: Form = "majority") -> list[float]:
    r"""Returns for each sample whether its answer is the group's most common one; 0 for one without an answer.

    Only the content of `\boxed{...}` counts if there is a box; reasoning does not count. Two answers are equal if their
    normal forms are, or if they are equal numbers or expressions for `math`: `1/2`, `0.5` and `\frac{1}{2}`. "I do not
    know" is not an answer. Ties go to the answer given first. A group that agrees gets equal rewards, so it gives no
    signal.

    Each answer is compared as an expression with at most 8 others, the first ones.

    Args:
        form: `majority`: 1 or 0; `share`: the share of the group with the same answer.

    Paper: https://arxiv.org/abs/2504.16084 (TTRL, `majority`)
    """
    answers = await _classes([_answer(sample) for sample in samples])
    counts = Counter(answer for answer in answers if answer)
    if form == "share":
        return [counts[answer] / len(samples) if answer else 0.0 for answer in answers]
    best = max(counts, key=counts.__getitem__, default=None)
    return [float(bool(answer) and answer == best) for answer in answers]


async def _classes(answers: Sequence[str]) -> list[str]:
    """Returns the first equal answer for each answer; an empty text stays empty."""
    first: dict[str, str] = {"": ""}
    for answer in dict.fromkeys(answers):
        if answer in first:
            continue
        first[answer] = answer
        for other in [one for one in dict.fromkeys(first.values()) if one and one != answer][:_MAX_JUDGED]:
            if await _are_equal(answer, other):
                first[answer] = other
                break
    return [first[answer] for answer in answers]


async def _are_equal(one: str, other: str) -> bool:
    if max(len(one), len(other)) > MAX_ANSWER_CHARS or not (_MATHS.search(one) and _MATHS.search(other)):
        return False
    try:
        return (await judge(one, other, timeout_s=_VERDICT_S)).is_right
    except ScoringError:  # it is not an expression
        return False


def _answer(sample: Sample) -> str:
    """Returns the answer in the form for comparison; empty if there is none."""
    answer = without_end_tokens(outside_reasoning(sample.final_answer[-_MAX_CHARS:]))
    boxed = last_boxed(answer)
    answer = answer if boxed is None else boxed
    if is_empty_box(answer) or is_refusal(answer):
        return ""
    # Signs and braces of an expression are part of it.
    return " ".join(answer.casefold().split()) if _MATHS.search(answer) else normalise(answer)
