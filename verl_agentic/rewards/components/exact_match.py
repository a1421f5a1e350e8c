"""Exact match of the final answer with a golden answer."""

from __future__ import annotations

from verl_agentic.base.text.reasoning import without_thoughts
from verl_agentic.rewards.answers.short_answers import golden_answers_of, matches
from verl_agentic.rewards.component import Value, component
from verl_agentic.rewards.sample import Sample


@component(low=0.0, high=1.0, kind="outcome", inline=True, needs_ground_truth=True)
def exact_match(sample: Sample) -> Value:
    """Returns 1 when the final answer is a golden one, else 0; abstains without ground truth.

    Both are compared in lower case, without punctuation, articles and extra space, by SQuAD's rule with the deviations
    of `base.text.normal_form`. An empty answer is never right. Reasoning before the answer does not count. The
    protocol determines the answer of a turn; `search_r1` requires tags.

    Raises:
        DataError: the ground truth is not an answer, list of answers or `{"target": answers}`.

    Paper: https://arxiv.org/abs/1606.05250 (SQuAD, section 6.1)
    """
    return matches(without_thoughts(sample.final_answer), golden_answers_of(sample.ground_truth))
