"""The environment's own outcome, for example from tests in its sandbox or its final state."""

from __future__ import annotations

from verl_agentic.base.errors import ScoringError
from verl_agentic.rewards.component import component
from verl_agentic.rewards.sample import Sample


@component(low=0.0, high=1.0, kind="outcome", inline=True)
def env(sample: Sample) -> float:
    """Returns the outcome of `Env.score`. Raises ScoringError if the environment did not score this episode."""
    if sample.env is None:
        raise ScoringError("the environment gave no outcome; choose a component that judges the transcript")
    return sample.env.outcome
