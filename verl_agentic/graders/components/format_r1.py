"""The form of DeepSeek-R1: reasoning, then an answer, each between its tags."""

from __future__ import annotations

import re

from verl_agentic.base.text.tags import has_one_block, marks
from verl_agentic.rewards.answers.empty_work import is_silent
from verl_agentic.rewards.component import component
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.turns import texts

_JOIN = re.compile(r"</think>\s*<answer>")
_OPENING, _CLOSING = "<think>", "</answer>"


def has_r1_form(text: str) -> bool:
    """Returns whether `^<think>.*?</think>\\s*<answer>.*?</answer>$` matches, in linear time."""
    if not (text.startswith(_OPENING) and text.endswith(_CLOSING)):
        return False
    return _JOIN.search(text, len(_OPENING)) is not None


@component(inline=True)
def format_r1(sample: Sample, *, strict: bool = True, starts_in_reasoning: bool = False) -> float:
    """Returns 1 when the last turn is `<think>...</think><answer>...</answer>` and nothing else, else 0.

    Also 0 if the answer is empty and there was no call.

    Args:
        strict: each of the four tags occurs once, and no earlier turn has an answer or a second block of reasoning.
            False: only the regular expression, which allows repeated and nested `<think>`.
        starts_in_reasoning: the chat template has opened `<think>` in the prompt.

    Paper: https://arxiv.org/abs/2501.12948. Deviations: the paper states the form but no expression; `strict` is ours.
    White space and special tokens around a turn are ignored.
    """
    turns = list(texts(sample.turns, starts_in_reasoning=starts_in_reasoning))
    if is_silent(sample):
        return 0.0
    if not turns or not has_r1_form(turns[-1]):
        return 0.0
    if not strict:
        return 1.0
    *earlier, last = turns
    is_clean = all((not marks(t, ["think"]) or has_one_block(t, "think")) and not marks(t, ["answer"]) for t in earlier)
    return float(is_clean and has_one_block(last, "think") and has_one_block(last, "answer"))
