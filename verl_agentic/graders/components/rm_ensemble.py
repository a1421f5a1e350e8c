"""A conservative ensemble of reward models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from verl_agentic.base.errors import ConfigError
from verl_agentic.graders.judge.panel import gathered
from verl_agentic.graders.models.refusals import ContentRefusedError
from verl_agentic.graders.models.reward_model import RewardModel, conversation, score
from verl_agentic.rewards.answers.empty_work import is_silent
from verl_agentic.rewards.component import Graded, component
from verl_agentic.rewards.sample import Sample

Aggregate = Literal["mean_std", "min"]
_LEAST_MEAN_STD = (1 - math.sqrt(2)) / 2  # of numbers from 0 to 1: p - sqrt(p (1 - p)) at its minimum


def ensemble_score(scores: Sequence[float], *, aggregate: Aggregate = "mean_std") -> float:
    """Returns mean - std of the scores (std over N, not N - 1), or their minimum."""
    if aggregate == "min":
        return min(scores)
    mean = sum(scores) / len(scores)
    return mean - math.sqrt(sum((score - mean) ** 2 for score in scores) / len(scores))


def _compute_low(aggregate: Aggregate, low: float, high: float) -> float:
    return low + (high - low) * _LEAST_MEAN_STD if aggregate == "mean_std" else low


def _check_options(members: Sequence[Mapping[str, Any]], low: float, high: float) -> None:
    if not low < high:
        raise ConfigError(f"rm_ensemble needs low < high, got {low} and {high}")
    if len([RewardModel.of(member) for member in members]) < 2:
        raise ConfigError(f"rm_ensemble needs at least 2 members, got {len(members)}; use rm for one")


@component(low=_compute_low, high=lambda high: high, info=("rm_mean", "rm_std", "rm_failures"), check=_check_options)
async def rm_ensemble(
    sample: Sample,
    *,
    members: Sequence[Mapping[str, Any]],
    aggregate: Aggregate = "mean_std",
    low: float = 0.0,
    high: float = 1.0,
) -> Graded:
    """Returns mean - std (or the minimum) of the scores of several reward models; abstains if one fails.

    Disagreement lowers the reward. With scores from 0 to 1, the minimum of mean - std is -0.207. An episode without an
    answer and without a call gets `low` without a request, and one whose content a server refuses gets it, too.

    Args:
        members: options of each, see `RewardModel`; `endpoint` (`.../pooling` or `.../classify`) and `model` are
            required.
        low, high: range of a member's score. Members must share one scale.

    Raises:
        ConfigError: a key, a URL or a model is wrong.
    """
    models = [RewardModel.of(member) for member in members]
    if is_silent(sample):
        return Graded(value=low)
    try:
        raw_scores = await gathered([score(model, conversation(sample, model)) for model in models])
    except ContentRefusedError:
        return Graded(value=low, info={"rm_failures": 1.0})
    scores = [min(max(raw_score, low), high) for raw_score in raw_scores if raw_score is not None]
    if len(scores) < len(models):
        return Graded(info={"rm_failures": float(len(models) - len(scores))})
    mean = sum(scores) / len(scores)
    spread = mean - ensemble_score(scores)
    return Graded(
        value=ensemble_score(scores, aggregate=aggregate), info={"rm_mean": mean, "rm_std": spread, "rm_failures": 0.0}
    )
