"""ReSearch's outcome: F1 of the boxed answer, and a little for the form."""

from __future__ import annotations

from verl_agentic.rewards.answers.empty_work import is_empty_box
from verl_agentic.rewards.answers.short_answers import (
    boxed_answer,
    golden_answers_of,
    has_research_form,
    is_endless,
    overlap,
    research_reward,
)
from verl_agentic.rewards.component import Graded, component
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.turns import texts


@component(low=0.0, high=1.0, kind="outcome", inline=True, needs_ground_truth=True)
def research(sample: Sample) -> Graded:
    r"""Returns 0 for a broken form or an empty box, else the F1 of the boxed answer, but 0.1 where that is 0.

    `acc` is the F1.
    The form: thoughts and searches in tags that pair up, one `<answer>` in the last turn, with a `\boxed{}`. Abstains
    without ground truth.

    Raises:
        DataError: the ground truth is not an answer, list of answers or `{"target": answers}`.

    Paper: https://arxiv.org/abs/2503.19470 (section 2.3): no demonstrations, form and F1. After SFT on the form, use
    `f1` or `exact_match`.
    """
    golden = golden_answers_of(sample.ground_truth)
    turns = list(texts(sample.turns, starts_in_reasoning=False))
    boxed = boxed_answer(turns)
    is_well_formed = boxed is not None and not is_empty_box(boxed) and has_research_form(turns)
    answer = "" if boxed is None or is_endless(boxed, golden) else boxed
    value = research_reward(answer, golden, is_well_formed=is_well_formed)
    return Graded(value=value, solved=overlap(answer, golden) if is_well_formed else 0.0)
