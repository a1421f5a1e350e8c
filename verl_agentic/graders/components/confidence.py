"""The policy's confidence in its own tokens."""

from __future__ import annotations

import math
from typing import Literal

from verl_agentic.base.errors import ConfigError
from verl_agentic.rewards.answers.empty_work import is_silent
from verl_agentic.rewards.component import ABSTAIN, Value, component
from verl_agentic.rewards.sample import Sample

Form = Literal["probability", "log_prob"]


def _compute_low(form: Form, least_log_prob: float) -> float:
    return 0.0 if form == "probability" else least_log_prob


def _check_options(least_log_prob: float) -> None:
    if not least_log_prob < 0:
        raise ConfigError(f"confidence.least_log_prob must be less than 0, got {least_log_prob}")


@component(low=_compute_low, high=lambda form: 1.0 if form == "probability" else 0.0, inline=True, check=_check_options)
def confidence(sample: Sample, *, form: Form = "probability", least_log_prob: float = -5.0) -> Value:
    """Returns the mean log-prob of the policy's tokens, or its exp (their geometric mean probability).

    Abstains if a turn has no log-prob. The minimum for an episode without an answer and without a call. It rewards
    confidence, right or wrong, and lowers the entropy. Use it in the first steps only, with a low weight.

    The mean log-prob is also a one-sample estimate of minus the entropy per token, since E[log p] = -H.

    Args:
        form: `probability` for the exp, in [0, 1]; `log_prob` for the mean itself, the estimate of minus the entropy.
        least_log_prob: minimum of the mean.
    """
    spoken = [turn for turn in sample.turns if turn.num_tokens > 0]
    if not spoken:
        return ABSTAIN
    if is_silent(sample):  # an immediate end of the turn is very confident
        return _compute_low(form, least_log_prob)
    total = 0.0
    for turn in spoken:
        if turn.mean_log_prob is None:
            return ABSTAIN
        total += turn.num_tokens * turn.mean_log_prob
    mean = min(max(total / sample.num_model_tokens, least_log_prob), 0.0)
    return math.exp(mean) if form == "probability" else mean
