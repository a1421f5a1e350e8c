"""A process reward model: scores each turn."""

from __future__ import annotations

from typing import Any

from verl_agentic.base.errors import ConfigError
from verl_agentic.graders.models.refusals import ContentRefusedError
from verl_agentic.graders.models.reward_model import RewardModel, checked_probabilities, step_scores, steps_as_one
from verl_agentic.rewards.answers.empty_work import is_silent
from verl_agentic.rewards.component import Graded, OnInvalid, component
from verl_agentic.rewards.sample import Sample


def _check_options(step_tag: str, **options: Any) -> None:
    if not step_tag.startswith("<"):
        raise ConfigError(f"prm.step_tag must begin with '<', which the policy cannot write there, got {step_tag!r}")
    RewardModel.of(options)


@component(info=("prm_min", "prm_failures"), outcome_options={"on_invalid": "zero"}, check=_check_options)
async def prm(
    sample: Sample, *, step_tag: str = "<extra_0>", on_invalid: OnInvalid = "abstain", **options: Any
) -> Graded:
    """Returns the mean score of the turns; each turn's share, score / turns, lands on the turn itself.

    Abstains if the model gives no answer. An episode without an answer and without a call gets 0. `verl-agentic reward
    steps` makes training labels for such models.

    Args:
        step_tag: token after each turn at which the model scores. `<extra_0>` is Qwen2.5-Math-PRM's.
        on_invalid: result for a wrong number of scores, or a content that the server refuses: `zero` (default of an
            outcome) or `abstain`.
        options: see `RewardModel`; `endpoint` (`.../pooling`) and `model` are required.

    Raises:
        ConfigError: the key, the URL or the model is wrong.
        ScoringError: a score is not a probability.

    Paper: https://arxiv.org/abs/2312.08935 (Math-Shepherd). Deviations: the paper gives each step its full score. Here
    scores are divided by the number of turns, so that more turns do not give more reward.
    """
    if is_silent(sample):
        return Graded(value=0.0, info={"prm_min": 0.0, "prm_failures": 0.0})
    model = RewardModel.of(options)
    try:
        scores = await step_scores(model, steps_as_one(sample, model, tag=step_tag))
    except ContentRefusedError:
        scores = []
    if scores is None or len(scores) != len(sample.turns):
        is_paid_nothing = scores is not None and on_invalid == "zero"
        return Graded(value=0.0 if is_paid_nothing else None, info={"prm_failures": 1.0})
    checked_probabilities(scores, of="prm")
    shares = {turn.index: score / len(scores) for turn, score in zip(sample.turns, scores, strict=True)}
    return Graded(turns=shares, info={"prm_min": min(scores), "prm_failures": 0.0})
