"""The budgets and deadlines of an episode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from verl_agentic.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class EpisodeLimits:
    """What one episode may use. Every deadline has a default that is on."""

    max_response_tokens: int
    """Most tokens of the response, observations included."""
    max_context_tokens: int
    """Most tokens of prompt and response together."""
    max_turns: int = 8
    """Most turns of the policy."""
    max_turn_tokens: int | None = None
    """Most tokens that the policy may sample in one turn; None leaves only the episode's budget."""
    turn_timeout_s: float = 600.0
    """Deadline of one turn: generation, or the environment's answer, each."""
    episode_timeout_s: float = 1800.0
    """Deadline of the whole episode, start and turns."""
    score_timeout_s: float = 60.0
    """Deadline of scoring."""
    close_timeout_s: float = 30.0
    """Deadline of releasing the environment."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is not None and not value > 0:
                raise ConfigError(f"{item.name} must be positive, got {value!r}")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], **defaults: Any) -> EpisodeLimits:
        """Returns limits from a config section; `defaults` fill what it leaves out.

        Raises:
            ConfigError: an unknown key, or a value out of range.
        """
        known = {item.name for item in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ConfigError(f"unknown episode limits, got {unknown}; known ones: {sorted(known)}")
        return cls(**{**defaults, **values})
