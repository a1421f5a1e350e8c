"""Compares short answers with golden ones; safe for very long answers."""

from __future__ import annotations

from collections.abc import Sequence

from verl_agentic.base.text.boxes import last_boxed
from verl_agentic.base.text.normal_form import normalise
from verl_agentic.base.text.tags import last_block
from verl_agentic.rewards.answers import short_answer_scores

MAX_EXTRA_CHARS = 10_000
"""Maximum extra length over the longest golden answer; longer answers are wrong."""
_SEARCHED_CHARS = 100_000


def boxed_answer(texts: Sequence[str]) -> str | None:
    r"""Returns the last complete `\boxed{...}` between the last answer tags, or None.

    Searches only the last 100,000 characters of the block.
    """
    block = last_block(texts, "answer")
    return None if block is None else last_boxed(block[-_SEARCHED_CHARS:])


def matches(answer: str, golden_answers: Sequence[str]) -> float:
    """Returns 1.0 for an exact match (`short_answer_scores.exact_match`), else 0.0."""
    return 0.0 if is_endless(answer, golden_answers) else short_answer_scores.exact_match(answer, golden_answers)


def overlap(answer: str, golden_answers: Sequence[str]) -> float:
    """Returns the F1 of shared words (`short_answer_scores.f1`), from 0.0 to 1.0."""
    return 0.0 if is_endless(answer, golden_answers) else short_answer_scores.f1(answer, golden_answers)


def mentions(text: str, golden_answers: Sequence[str]) -> bool:
    """Returns whether a text contains a golden answer as whole words, both normalised."""
    words = f" {normalise(text)} "
    return any(golden and f" {golden} " in words for golden in map(normalise, golden_answers))


def is_endless(answer: str, golden_answers: Sequence[str]) -> bool:
    """Returns whether an answer is too long to be right."""
    return len(answer) > max(map(len, golden_answers)) + MAX_EXTRA_CHARS
