"""The length of an episode in turns, calls or tokens of the policy."""

from __future__ import annotations

from typing import Literal

from verl_agentic.base.errors import ConfigError
from verl_agentic.rewards.sample import Sample

Unit = Literal["turns", "calls", "tokens"]


def length(sample: Sample, unit: Unit) -> int:
    """Returns the number of the policy's turns, calls or tokens; raises ConfigError for another unit."""
    match unit:
        case "turns":
            return len(sample.turns)
        case "calls":
            return len(sample.calls)
        case "tokens":
            return sample.num_model_tokens
    raise ConfigError(f"unit must be turns, calls or tokens, got {unit!r}")
