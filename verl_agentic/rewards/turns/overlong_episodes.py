"""Overlong filtering."""

from __future__ import annotations

from verl_agentic.base.types import StopReason
from verl_agentic.rewards.sample import Sample

_CUT_OFF = frozenset({StopReason.MAX_TOKENS, StopReason.CONTEXT_FULL})


def is_overlong(sample: Sample, *, max_tokens: int = 0) -> bool:
    """Returns whether overlong filtering masks the loss of this episode.

    It does if a token budget truncated the episode, or if it has more than `max_tokens` sampled tokens. Estimators
    exclude a masked row from the group's mean.

    Args:
        max_tokens: maximum number of sampled tokens; 0: no limit.

    Paper: https://arxiv.org/abs/2503.14476 (section 3.4, "Overlong Filtering")
    """
    return sample.stop_reason in _CUT_OFF or 0 < max_tokens < sample.num_model_tokens
