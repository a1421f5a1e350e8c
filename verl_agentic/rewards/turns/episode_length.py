"""How long an episode is, counted by what the policy did."""

from __future__ import annotations

from typing import Literal

from verl_agentic.errors import ConfigError
from verl_agentic.rewards.sample import Sample

Unit = Literal["turns", "calls", "tokens"]


def length(sample: Sample, unit: Unit) -> int:
    """Returns how many turns, calls or tokens the policy made; what it was answered does not count.

    Raises:
        ConfigError: another unit.
    """
    match unit:
        case "turns":
            return len(sample.turns)
        case "calls":
            return len(sample.calls)
        case "tokens":
            return sample.num_model_tokens
    raise ConfigError(f"unit must be turns, calls or tokens, got {unit!r}")
