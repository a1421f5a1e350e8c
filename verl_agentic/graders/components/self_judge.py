"""Lets the policy judge its own episode, for rows without a verifier."""

from __future__ import annotations

from typing import Any

from verl_agentic.base.errors import ConfigError
from verl_agentic.graders.judge.options import JudgeOptions
from verl_agentic.graders.judge.panel import INFO, rule
from verl_agentic.rewards.answers.empty_work import is_silent
from verl_agentic.rewards.component import ABSTAIN, Graded, component
from verl_agentic.rewards.sample import Sample


def _read_settings(**options: Any) -> JudgeOptions:
    if "cache" in options:
        # The weights of the policy change under the same name, so cached verdicts would be outdated.
        raise ConfigError("self_judge has no cache, got one; the policy that judges changes with every step")
    return JudgeOptions.from_mapping(options)


@component(info=INFO, outcome_options={"on_invalid": "zero"}, check=_read_settings)
async def self_judge(sample: Sample, **options: Any) -> Graded:
    """Returns `judge` with the policy's own endpoint; abstains for rows that have a verifier.

    A verifier exists if the row has a ground truth or the environment scored the episode. So the policy's opinion never
    overrides a rule. Use it in a rubric as `fallback_for: math`, which makes it an outcome.

    Args:
        options: see `JudgeOptions`, without `cache`; `endpoint` is the server that samples the rollouts. Several
            verdicts of one policy need `seeds` and a `temperature`.

    Raises:
        ConfigError: see `judge`.
    """
    settings = _read_settings(**options)
    if sample.ground_truth is not None or sample.env is not None:
        return ABSTAIN
    if is_silent(sample):
        return Graded(value=0.0)
    return (await rule(settings.blocks(sample), settings)).to_graded()
