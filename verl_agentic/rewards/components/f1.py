"""F1 of the words that the final answer shares with a golden answer."""

from __future__ import annotations

from verl_agentic.base.text.reasoning import without_thoughts
from verl_agentic.rewards.answers.short_answers import golden_answers_of, overlap
from verl_agentic.rewards.component import Value, component
from verl_agentic.rewards.sample import Sample


@component(low=0.0, high=1.0, kind="outcome", inline=True, needs_ground_truth=True)
def f1(sample: Sample) -> Value:
    """Returns the F1 of the words that the final answer shares with the best golden one; abstains without ground truth.

    2 * shared / (words + golden words), words normalised as in `exact_match`; `yes`, `no` and `noanswer` must be the
    whole answer.

    Raises:
        DataError: the ground truth is not an answer, list of answers or `{"target": answers}`.

    Paper: https://arxiv.org/abs/1606.05250 (SQuAD, section 6.1); the rule for `yes` and `no` is HotpotQA's,
    https://arxiv.org/abs/1809.09600
    """
    return overlap(without_thoughts(sample.final_answer), golden_answers_of(sample.ground_truth))
