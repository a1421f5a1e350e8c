"""SSRL's outcome: 0.9 for exact match, 0.1 for the form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from verl_agentic.base.text.tags import blocks, last_block, marks
from verl_agentic.rewards.answers.empty_work import is_empty
from verl_agentic.rewards.answers.short_answers import golden_answers_of, matches
from verl_agentic.rewards.component import Graded, component
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.turns import texts

MATCH, FORM = 0.9, 0.1
MAX_THOUGHTS = 8
_TAGS = ("think", "search", "information", "answer")
_PLACEHOLDERS = {
    "think": "your thoughts", "search": "your query", "information": "your information", "answer": "your answer"
}  # fmt: skip


def ssrl_form(turns: Sequence[str], *, is_answered: Sequence[bool]) -> float:
    """Returns the score of the form, from 0 to 1.

    min(thoughts / 2, 1) * min(a, b) / max(a, b), with a = thoughts and b = searches + 1. It is 0 with more than 8
    thoughts or if a rule is broken: only the tags think, search, information and answer; a thought first, an answer
    last; information after every search; nothing empty, no placeholder of the prompt, searches in one line.

    Args:
        turns: the policy's texts, without special tokens at the end.
        is_answered: for each turn, whether a tool answered its search; that replaces information by the policy.
    """
    if not turns or not turns[0].startswith("<think>") or not turns[-1].endswith("</answer>"):
        return 0.0
    tags = {*_TAGS, *(f"/{tag}" for tag in _TAGS)}
    if any(tag not in tags for text in turns for tag in _angle_brackets(text)):
        return 0.0
    if not all(_is_filled(tag, block) for tag in _TAGS for text in turns for block in blocks(text, tag)):
        return 0.0
    order: list[str] = []
    for text, answered in zip(turns, is_answered, strict=True):
        order += marks(text, _TAGS)
        if answered and order[-1:] == ["/search"]:
            order += ["information", "/information"]
    if not _is_ordered(order):
        return 0.0
    thoughts, steps = order.count("think"), order.count("search") + 1
    if thoughts > MAX_THOUGHTS:
        return 0.0
    return min(thoughts / 2, 1.0) * min(thoughts, steps) / max(thoughts, steps)


def _is_filled(tag: str, block: str) -> bool:
    if is_empty(block) or _PLACEHOLDERS[tag] in block.lower():
        return False
    return tag != "search" or "\n" not in block


def _is_ordered(order: Sequence[str]) -> bool:
    if order[:2] != ["think", "/think"] or order[-2:] != ["answer", "/answer"] or len(order) < 4:
        return False
    searches = [index for index, tag in enumerate(order) if tag == "search"]
    search_tags = ["search", "/search", "information", "/information"]
    return order.count("information") == len(searches) and all(order[i : i + 4] == search_tags for i in searches)


def _angle_brackets(text: str) -> Iterator[str]:
    """Yields the texts between `<` and the next `>`."""
    position = 0
    while (start := text.find("<", position)) >= 0:
        end = text.find(">", start + 1)
        if end < 0:
            return
        if end > start + 1:
            yield text[start + 1 : end]
        position = end + 1


@component(low=0.0, high=1.0, kind="outcome", inline=True, info=("form",), needs_ground_truth=True)
def ssrl(sample: Sample) -> Graded:
    """Returns 0.9 * exact match of the last `<answer>` + 0.1 * `ssrl_form`; abstains without ground truth.

    Raises:
        DataError: the ground truth is not an answer, list of answers or `{"target": answers}`.

    Paper: https://arxiv.org/abs/2508.10874 (rules of the form as in its `naive.py`). Deviations: the original only
    handles information that the policy writes; here results of a real engine count too.
    """
    golden = golden_answers_of(sample.ground_truth)
    turns = list(texts(sample.turns, starts_in_reasoning=False))
    answer = last_block(turns, "answer")
    form = ssrl_form(turns, is_answered=[bool(turn.observations) for turn in sample.turns])
    match = 0.0 if answer is None else matches(answer, golden)
    return Graded(value=MATCH * match + FORM * form, info={"form": form}, solved=match)
