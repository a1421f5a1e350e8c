"""A format score: reasoning, valid calls, a boxed answer."""

from __future__ import annotations

import math
from collections.abc import Sequence

from verl_agentic.base.text.tags import blocks, has_one_block, marks
from verl_agentic.rewards.answers.empty_work import is_silent
from verl_agentic.rewards.answers.tool_calls import is_well_formed, was_carried_out
from verl_agentic.rewards.component import component
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.turns import texts


@component(inline=True)
def format(
    sample: Sample, *, max_call_bonus: float | None = 0.2, strict: bool = True, starts_in_reasoning: bool = False
) -> float:
    r"""Returns 0.3 for reasoning + 0.1 per valid call - 0.2 per invalid call + 0.2 for a boxed answer, within [0, 1].

    0 for an episode without an answer and without a call.

    Args:
        max_call_bonus: maximum bonus of valid calls. None is the original form, in which 8 calls of any kind get as
            much as reasoning and answering, so the policy learns to call.
        strict: at most one block `<think>...</think>` per turn, only calls that were carried out, and the box in the
            last turn after its reasoning. False: any such block, any call that could be read, `\boxed{` anywhere.
        starts_in_reasoning: the chat template has opened `<think>` in the prompt.
    """
    if is_silent(sample):
        return 0.0
    turns = list(texts(sample.turns, starts_in_reasoning=starts_in_reasoning))
    is_valid = was_carried_out if strict else is_well_formed
    valid = sum(is_valid(call) for call in sample.calls)
    bonus = min(0.1 * valid, math.inf if max_call_bonus is None else max_call_bonus)
    score = bonus - 0.2 * (len(sample.calls) - valid)
    score += 0.3 * _has_reasoning(turns, strict=strict) + 0.2 * _has_box(turns, strict=strict)
    return min(max(score, 0.0), 1.0)


def _has_reasoning(turns: Sequence[str], *, strict: bool) -> bool:
    if not strict:
        return any(blocks(text, "think") for text in turns)
    tagged = [text for text in turns if marks(text, ["think"])]
    return bool(tagged) and all(has_one_block(text, "think") for text in tagged)


def _has_box(turns: Sequence[str], *, strict: bool) -> bool:
    if not strict:
        return any(r"\boxed{" in text for text in turns)
    return bool(turns) and r"\boxed{" in turns[-1].rpartition("</think>")[2]
