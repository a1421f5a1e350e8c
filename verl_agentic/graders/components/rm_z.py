"""The scores of one reward model, normalised over their group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from verl_agentic.base.errors import ConfigError
from verl_agentic.graders.groups.group_advantages import grpo
from verl_agentic.graders.judge.panel import gathered
from verl_agentic.graders.models.assessment import Assessment, Form, assess
from verl_agentic.graders.models.reward_model import RewardModel
from verl_agentic.rewards.answers.empty_work import is_silent
from verl_agentic.rewards.component import Graded, OnInvalid, component
from verl_agentic.rewards.sample import Sample


def _check_options(max_z: float, **options: Any) -> None:
    if not 0 < max_z < math.inf:
        raise ConfigError(f"rm_z.max_z must be greater than 0, got {max_z}")
    RewardModel.of(options)


@component(
    low=lambda max_z: -max_z,
    high=lambda max_z: max_z,
    scope="group",
    info=("rm_score", "rm_failures"),
    outcome_options={"on_invalid": "zero"},
    check=_check_options,
)
async def rm_z(
    samples: Sequence[Sample],
    *,
    form: Form = "score",
    max_z: float = 3.0,
    on_invalid: OnInvalid = "abstain",
    **options: Any,
) -> list[Graded]:
    """Returns for each sample `(score - mean) / std` over its group (ddof 1), clamped to [-max_z, max_z].

    `acc` is the place in that range.

    0 if all scores of the group are equal. A sample without a score abstains and does not count. An episode without an
    answer and without a call gets the minimum score of the group without a request. Use it with estimators without
    group statistics (REINFORCE++, PPO). GRPO normalises itself, so use `rm` there.

    Args:
        max_z: maximum distance from the mean, in standard deviations.
        on_invalid: result for an answer other than YES or NO: `zero` (the group's minimum, default of an outcome) or
            `abstain`.
        form, options: see `rm`.

    Raises:
        ConfigError: the key, the URL or the model is wrong.

    Paper: https://arxiv.org/abs/2503.23829 (soft rewards, z-normalised). It does not state the ddof.
    """
    model = RewardModel.of(options)
    spoken_indices = [index for index, sample in enumerate(samples) if not is_silent(sample)]
    answers = await gathered([assess(samples[index], model, form=form) for index in spoken_indices])
    assessments = dict(zip(spoken_indices, answers, strict=True))
    scores = {index: assessment.value for index, assessment in assessments.items() if assessment.value is not None}
    min_score = min(scores.values(), default=0.0)
    for index in range(len(samples)):
        if _counts_as_least(assessments.get(index), on_invalid=on_invalid):
            scores[index] = min_score
    normalised = dict(zip(scores, grpo(list(scores.values())), strict=True))
    return [
        _make_failure() if index not in normalised else _grade_z(normalised[index], assessments.get(index), max_z)
        for index in range(len(samples))
    ]


def _counts_as_least(assessment: Assessment | None, *, on_invalid: OnInvalid) -> bool:
    """Returns whether a sample without a score gets the minimum: it was silent, or the answer was invalid."""
    return assessment is None or (assessment.is_invalid and on_invalid == "zero")


def _grade_z(z: float, assessment: Assessment | None, max_z: float) -> Graded:
    value = None if assessment is None else assessment.value
    is_missing = assessment is not None and value is None
    info = {"rm_score": value or 0.0, "rm_failures": float(is_missing)}
    bounded = min(max(z, -max_z), max_z)
    return Graded(value=bounded, info=info, solved=(bounded + max_z) / (2 * max_z))


def _make_failure() -> Graded:
    return Graded(info={"rm_failures": 1.0})
