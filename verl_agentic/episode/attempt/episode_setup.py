"""Settings of all attempts at an episode."""

from __future__ import annotations

from dataclasses import dataclass, field

from verl_agentic.episode.attempt.compaction import Compaction
from verl_agentic.episode.attempt.exploration import Exploration
from verl_agentic.episode.codec.clipping import TextTokenizer
from verl_agentic.episode.codec.codec import Codec
from verl_agentic.episode.limits import EpisodeLimits
from verl_agentic.episode.policies.policy import Policy


@dataclass(frozen=True, kw_only=True)
class EpisodeSetup:
    """Settings of all attempts at an episode."""

    policy: Policy
    codec: Codec
    tokenizer: TextTokenizer
    limits: EpisodeLimits
    compaction: Compaction | None = None
    exploration: Exploration = field(default_factory=Exploration)
    guidance: bool = False
    """Whether a failed episode (outcome below 1) is retried with the environment's guidance, if it gives any. Only the
    second attempt is trained, with the guidance in its prompt. Its siblings are the other guided sessions."""
    instruction: str = ""
    """Text that is added to the prompt of the environment, such as one of an evolving population."""
    constraint: str = ""
    """Specification in linear temporal logic of the calls that may come next; see `ltl`. Empty: any."""
    constraint_masks: bool = False
    """Whether the engine may only choose among allowed calls, where the answer is not allowed."""
    has_rubric: bool = False
    """Whether a rubric scores the episode later, so that the environment need not."""
