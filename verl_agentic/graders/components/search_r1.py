"""Search-R1's outcome: exact match of the last answer tags."""

from __future__ import annotations

from verl_agentic.base.text.tags import last_block
from verl_agentic.rewards.answers.short_answers import golden_answers_of, matches
from verl_agentic.rewards.component import Graded, component
from verl_agentic.rewards.sample import Sample

MAX_TAGS = 10
"""Maximum number of opening or closing answer tags; more count as guessing."""


@component(low=0.0, high=1.0, kind="outcome", inline=True, needs_ground_truth=True)
def search_r1(sample: Sample) -> Graded:
    """Returns 1 when the last `<answer>...</answer>` is a golden answer, else 0; abstains without ground truth.

    A quarter of it if there are more than 10 opening or closing answer tags.

    Raises:
        DataError: the ground truth is not an answer, list of answers or `{"target": answers}`.

    Paper: https://arxiv.org/abs/2503.09516 (section 3.4). Deviations: the original also reads prompt and observations,
    and takes the last of at least two answers (the first is the prompt's example); verl reads observations, so an
    answer in a search result scores. Here only the policy's text counts. The quarter is verl's.
    """
    golden = golden_answers_of(sample.ground_truth)
    texts = [turn.text for turn in sample.turns]
    answer = last_block(texts, "answer")
    if answer is None:
        return Graded(value=0.0)
    is_spam = any(sum(text.count(tag) for text in texts) > MAX_TAGS for tag in ("<answer>", "</answer>"))
    match = matches(answer, golden)
    return Graded(value=match / 4.0 if is_spam else match, solved=match)
