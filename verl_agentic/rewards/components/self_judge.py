"""What the policy says of its own episode, for rows that nothing else can judge."""

from __future__ import annotations

from typing import Any

from verl_agentic.errors import ConfigError
from verl_agentic.rewards.component import ABSTAIN, Graded, component
from verl_agentic.rewards.judge.options import JudgeOptions
from verl_agentic.rewards.judge.panel import INFO, rule
from verl_agentic.rewards.models.quote import blocks_of
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.text.empty_work import is_silent


def _settings(**options: Any) -> JudgeOptions:
    if "cache" in options:
        # The name of the policy stays while its weights change: a cache would keep the opinions of its past.
        raise ConfigError("self_judge has no cache, got one; the policy that judges changes with every step")
    return JudgeOptions.from_mapping(options)


@component(info=INFO, outcome_options={"on_invalid": "zero"}, check=_settings)
async def self_judge(sample: Sample, **options: Any) -> Graded:
    """Returns what `judge` returns, asked of the policy's own endpoint; an abstention for rows that have a verifier.

    A verifier is there when the row has a ground truth or the environment scored the episode: then nothing is asked, so
    a policy that flatters itself never overrides a rule. In a rubric it stands behind one: `fallback_for: math`.

    Args:
        sample: what is judged.
        options: see `JudgeOptions`, without `cache`; `endpoint` is the server that samples the rollouts. Several
            verdicts of one policy need `seeds` and a `temperature`.

    Raises:
        ConfigError: see `judge`.
    """
    settings = _settings(**options)
    if sample.ground_truth is not None or sample.env is not None:
        return ABSTAIN
    if is_silent(sample):
        return Graded(value=0.0)
    blocks = blocks_of(sample, view=settings.view, thoughts=settings.thoughts, max_chars=settings.max_chars)
    return (await rule(blocks, settings)).to_graded()
