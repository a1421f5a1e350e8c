"""Uses the majority answer of a group as the ground truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from verl_agentic.graders.answers.answer_classes import answer_classes
from verl_agentic.rewards.component import component
from verl_agentic.rewards.sample import Sample

Form = Literal["majority", "share"]


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
    answers = await answer_classes([sample.final_answer for sample in samples])
    counts = Counter(answer for answer in answers if answer)
    if form == "share":
        return [counts[answer] / len(samples) if answer else 0.0 for answer in answers]
    best = max(counts, key=counts.__getitem__, default=None)
    return [float(bool(answer) and answer == best) for answer in answers]
