"""The score of one reward model, or a language model's probability that the work is right."""

from __future__ import annotations

import math
from typing import Any

from verl_agentic.base.errors import ConfigError
from verl_agentic.graders.models.assessment import Form, assess
from verl_agentic.graders.models.reward_model import RewardModel
from verl_agentic.rewards.answers.empty_work import is_silent
from verl_agentic.rewards.component import Graded, OnInvalid, component
from verl_agentic.rewards.sample import Sample


def _check_options(low: float, high: float, **options: Any) -> None:
    if not -math.inf < low < high < math.inf:
        raise ConfigError(f"rm needs finite low < high, got {low} and {high}")
    RewardModel.of(options)


@component(
    low=lambda low: low,
    high=lambda high: high,
    info=("rm_score", "rm_failures"),
    outcome_options={"on_invalid": "zero"},
    check=_check_options,
)
async def rm(
    sample: Sample,
    *,
    form: Form = "score",
    low: float = 0.0,
    high: float = 1.0,
    on_invalid: OnInvalid = "abstain",
    **options: Any,
) -> Graded:
    """Returns a reward model's score of the episode, clamped to [low, high]; abstains if it gives no answer.

    `low` without a request for an episode without an answer and without a call. `rm_z` normalises the scores of a
    group, `orm` makes 1 or 0 of a probability.

    Args:
        form: `score` reads a classifier's number, `yes_no` is a language model's P(YES); see `assessment.assess`.
        low, high: range of the score.
        on_invalid: result for an answer other than YES or NO: `zero` (`low`, default of an outcome) or `abstain`.
        options: see `RewardModel`; `endpoint` and `model` are required. `view: answer` scores only the final answer,
            `principles: [...]` are added to the prompt, `reference: true` shows the ground truth (`yes_no`).

    Raises:
        ConfigError: the key, the URL or the model is wrong.

    Papers: https://arxiv.org/abs/2503.23829 (a soft reward: p(correct) of a generative verifier that sees the
    reference), https://arxiv.org/abs/2509.20357 (RLMT: thoughts are never shown), https://arxiv.org/abs/2310.05910
    (SALMON: principles in the prompt; its model is trained with them, and scores pairs).
    """
    model = RewardModel.of(options)
    if is_silent(sample):
        return Graded(value=low)
    assessment = await assess(sample, model, form=form)
    if assessment.value is None:
        is_least = assessment.is_invalid and on_invalid == "zero"
        return Graded(value=low if is_least else None, info={"rm_failures": 1.0})
    return Graded(value=min(max(assessment.value, low), high), info={"rm_score": assessment.value, "rm_failures": 0.0})
