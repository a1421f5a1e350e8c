r"""Compares short answers with golden ones: exact match and F1 over words in normal form (`normal_form`).

Pass only text of the policy, never tool outputs. Then an answer that is only in a search result scores 0.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from verl_agentic.base.errors import DataError
from verl_agentic.base.text.boxes import last_boxed
from verl_agentic.base.text.normal_form import normalise
from verl_agentic.base.text.tags import last_block

_WHOLE_ANSWERS = frozenset({"yes", "no", "noanswer"})
_THINK, _SEARCH, _ANSWER = (("<think>", "</think>"), ("<search>", "</search>"), ("<answer>", "</answer>"))


def exact_match(answer: str, golden_answers: Sequence[str]) -> float:
    """Returns 1.0 if the normal form of the answer equals a golden one's, else 0.0; always 0.0 for an empty answer."""
    normal = normalise(answer)
    return float(bool(normal) and normal in {normalise(golden) for golden in golden_answers})


def f1(answer: str, golden_answers: Sequence[str]) -> float:
    """Returns the best F1 of shared words over the golden answers, from 0.0 to 1.0.

    Repeated words count repeatedly. If either side is `yes`, `no` or `noanswer`, the other must be equal, as in
    HotpotQA; otherwise a shared word in a sentence would score.
    """
    return max((_compute_word_f1(normalise(answer), normalise(golden)) for golden in golden_answers), default=0.0)


def research_reward(answer: str, golden_answers: Sequence[str], *, is_well_formed: bool) -> float:
    """Returns ReSearch's outcome: 0 for a broken form, else F1, but 0.1 where that is 0.

    Paper: https://arxiv.org/abs/2503.19470 (section 2.3)
    """
    if not is_well_formed:
        return 0.0
    return f1(answer, golden_answers) or 0.1


def has_research_form(turns: Sequence[str]) -> bool:
    r"""Returns whether the policy's turns have ReSearch's form.

    Thoughts and searches open and close in turn. There is at least one thought, and exactly one answer, in the last
    turn and with a `\boxed{`.
    """
    text = "\n".join(turns)
    if not all(_is_paired(text, *tags) for tags in (_THINK, _SEARCH, _ANSWER)):
        return False
    answer = turns[-1].partition(_ANSWER[0])[2].partition(_ANSWER[1])[0] if turns else ""
    return text.count(_THINK[0]) > 0 and text.count(_ANSWER[0]) == 1 and r"\boxed{" in answer


def golden_answers_of(ground_truth: Any) -> tuple[str, ...]:
    """Returns a row's answers from a text, a list or `{"target": ...}`. Raises DataError if one is missing or empty."""
    target: Any = ground_truth.get("target") if isinstance(ground_truth, dict) else ground_truth
    if hasattr(target, "tolist"):  # parquet gives arrays
        target = target.tolist()
    answers: Any = [target] if isinstance(target, str) else target
    is_list = isinstance(answers, (list, tuple)) and len(answers) > 0
    if not is_list or not all(isinstance(answer, str) and normalise(answer) for answer in answers):
        raise DataError(
            f"ground_truth must be an answer, a list of answers or {{'target': answers}}, got {ground_truth!r}; "
            "fix the row"
        )
    return tuple(answers)


def _compute_word_f1(answer: str, golden: str) -> float:
    if answer != golden and _WHOLE_ANSWERS & {answer, golden}:
        return 0.0
    words, golden_words = answer.split(), golden.split()
    shared = sum((Counter(words) & Counter(golden_words)).values())
    # Precision is shared / words, recall is shared / golden words; this is their harmonic mean.
    return 2 * shared / (len(words) + len(golden_words)) if shared else 0.0


def _is_paired(text: str, opening: str, closing: str) -> bool:
    """Returns whether the tags open and close in turn."""
    tags = re.findall(f"{re.escape(opening)}|{re.escape(closing)}", text)
    return tags == [opening, closing] * (len(tags) // 2)


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
    """Returns 1.0 for an exact match (`exact_match`), else 0.0."""
    return 0.0 if is_endless(answer, golden_answers) else exact_match(answer, golden_answers)


def overlap(answer: str, golden_answers: Sequence[str]) -> float:
    """Returns the F1 of shared words (`f1`), from 0.0 to 1.0."""
    return 0.0 if is_endless(answer, golden_answers) else f1(answer, golden_answers)


def mentions(text: str, golden_answers: Sequence[str]) -> bool:
    """Returns whether a text contains a golden answer as whole words, both normalised."""
    words = f" {normalise(text)} "
    return any(golden and f" {golden} " in words for golden in map(normalise, golden_answers))


def is_endless(answer: str, golden_answers: Sequence[str]) -> bool:
    """Returns whether an answer is too long to be right."""
    return len(answer) > max(map(len, golden_answers)) + MAX_EXTRA_CHARS
