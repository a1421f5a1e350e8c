"""An outcome reward model: a trained model that decides whether the task is done."""

from __future__ import annotations

from typing import Any

from verl_agentic.base.errors import ConfigError
from verl_agentic.graders.models.assessment import Form, assess
from verl_agentic.graders.models.reward_model import RewardModel, checked_probabilities
from verl_agentic.rewards.answers.empty_work import is_silent
from verl_agentic.rewards.component import Graded, OnInvalid, component
from verl_agentic.rewards.sample import Sample


def _check_options(threshold: float, **options: Any) -> None:
    if not 0 < threshold <= 1:
        raise ConfigError(f"orm.threshold must be above 0 and at most 1, got {threshold}")
    RewardModel.of(options)


@component(kind="outcome", info=("orm_p", "orm_failures"), outcome_options={"on_invalid": "zero"}, check=_check_options)
async def orm(
    sample: Sample, *, form: Form = "yes_no", threshold: float = 0.5, on_invalid: OnInvalid = "abstain", **options: Any
) -> Graded:
    """Returns 1 if the model's P(YES) is at least `threshold`, else 0; abstains if the model gives no answer.

    Also 0 for an episode without an answer and without a call. `rm` returns the probability itself.

    Args:
        form: `yes_no` asks a language model, `score` a classifier; see `assessment.assess`.
        on_invalid: result for an answer other than YES or NO: `zero` (default of an outcome) or `abstain`.
        options: see `RewardModel`; `endpoint` and `model` are required.

    Raises:
        ConfigError: the key, the URL or the model is wrong.
        ScoringError: a classifier's score is not a probability.

    Paper: https://arxiv.org/abs/2411.02337 (WebRL). Deviations: WebRL's prompt has the page and the history of actions;
    here the trajectory is quoted as for judges. P(YES) is normalised over both words.
    """
    model = RewardModel.of(options)
    if is_silent(sample):
        return Graded(value=0.0)
    assessment = await assess(sample, model, form=form)
    if assessment.value is None:
        is_paid_nothing = assessment.is_invalid and on_invalid == "zero"
        return Graded(value=0.0 if is_paid_nothing else None, info={"orm_failures": 1.0})
    (p,) = checked_probabilities([assessment.value], of="orm")
    return Graded(value=float(p >= threshold), info={"orm_p": p, "orm_failures": 0.0})
