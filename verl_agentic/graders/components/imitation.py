"""The logit of a discriminator between experts and the policy."""

from __future__ import annotations

import functools
import math
from pathlib import Path

from verl_agentic.base.errors import ConfigError
from verl_agentic.graders.models.discriminator import Discriminator
from verl_agentic.rewards.answers.empty_work import is_silent
from verl_agentic.rewards.component import component
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.turns import texts


def _check_options(model: str, bound: float) -> None:
    if not 0 < bound < math.inf:
        raise ConfigError(f"imitation.bound must be greater than 0, got {bound}; 5 is a chance of 99.3 %")
    _load_discriminator(model)


@component(low=lambda bound: -bound, high=lambda bound: bound, check=_check_options)
def imitation(sample: Sample, *, model: str, bound: float = 5.0) -> float:
    """Returns the discriminator's logit of the policy's text: above 0 if an expert is the more likely author.

    -bound for an episode without an answer and without a call.

    `verl-agentic reward imitate` makes the discriminator. A policy learns only the features of the discriminator. Keep
    the weight low, and refit it on recent trajectories.

    Args:
        model: file of the discriminator.
        bound: the logit is clamped to [-bound, bound].

    Raises:
        ConfigError: the file does not exist.

    Paper: https://arxiv.org/abs/1710.11248; see `graders.models.discriminator` for what differs.
    """
    if is_silent(sample):
        return -bound
    logit = _load_discriminator(model).logit("\n".join(texts(sample.turns, starts_in_reasoning=False)))
    return max(-bound, min(bound, logit))


@functools.lru_cache(maxsize=8)
def _load_discriminator(model: str) -> Discriminator:
    return Discriminator.load(Path(model))
