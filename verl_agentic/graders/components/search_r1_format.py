"""Search-R1's outcome with rewards for the form and for retrieval."""

from __future__ import annotations

import re
from collections.abc import Sequence

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.text.tags import last_block
from verl_agentic.rewards.answers.empty_work import is_empty
from verl_agentic.rewards.answers.short_answers import golden_answers_of, matches, mentions
from verl_agentic.rewards.answers.tool_calls import was_carried_out
from verl_agentic.rewards.component import Graded, component
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.turns import texts

_TAG = re.compile(r"(</?(?:think|search|information|answer)>)")


def has_search_form(turns: Sequence[str]) -> bool:
    """Returns whether every turn is only a thought and a search, and the last one a thought and an answer.

    Args:
        turns: the policy's texts, without special tokens at the end.
    """
    return bool(turns) and all(
        _is_thought_and(action, text)
        for action, text in zip(["search"] * (len(turns) - 1) + ["answer"], turns, strict=True)
    )


def _is_thought_and(action: str, text: str) -> bool:
    outside_and_tags = _TAG.split(text)
    return outside_and_tags[1::2] == ["<think>", "</think>", f"<{action}>", f"</{action}>"] and not any(
        part.strip() for part in outside_and_tags[0::4]
    )


def _check_options(structure: float, final: float, retrieval: float) -> None:
    if not (min(structure, final, retrieval) >= 0 and max(structure + retrieval, final) <= 1):
        raise ConfigError(
            "search_r1_format needs shares of at least 0 that no wrong answer exceeds 1 with, got "
            f"structure={structure}, final={final}, retrieval={retrieval}"
        )


@component(kind="outcome", check=_check_options, needs_ground_truth=True)
def search_r1_format(sample: Sample, *, structure: float = 0.2, final: float = 0.1, retrieval: float = 0.1) -> Graded:
    """Returns a graded exact match of the last answer tags; abstains without ground truth.

    Right: 1, or 1 - structure in a broken form. Wrong: structure in the right form, plus retrieval if a search found a
    golden answer; final for an answer in a broken form; 0 without an answer. `acc` is 1 for a right answer. It reads
    results of calls, by design.

    Args:
        structure: reward of the form.
        final: reward of a wrong answer in tags.
        retrieval: reward of having found a golden answer.

    Raises:
        DataError: the ground truth is not an answer, list of answers or `{"target": answers}`.

    Paper: https://arxiv.org/abs/2505.15117 (form and values as in `qa_em_format.py` of Search-R1; its scripts have
    retrieval 0). Deviations: the original also accepts golden answers inside of words and in information that the
    policy made up; here they are whole words of real results. It requires two answer tags, since it also reads the
    prompt.
    """
    golden = golden_answers_of(sample.ground_truth)
    turns = list(texts(sample.turns, starts_in_reasoning=False))
    answer, is_well_formed = last_block(turns, "answer"), has_search_form(turns)
    if answer is None or is_empty(answer):
        return Graded(value=0.0)
    if matches(answer, golden):
        return Graded(value=1.0 if is_well_formed else 1.0 - structure, solved=1.0)
    if not is_well_formed:
        return Graded(value=final, solved=0.0)
    has_golden = any(mentions(call.result or "", golden) for call in sample.calls if was_carried_out(call))
    return Graded(value=structure + (retrieval if has_golden else 0.0), solved=0.0)
