"""Which episodes were cut off or are too long to learn from."""

from __future__ import annotations

from verl_agentic.rewards.sample import Sample
from verl_agentic.types import StopReason

_CUT_OFF = frozenset({StopReason.MAX_TOKENS, StopReason.CONTEXT_FULL})


def is_overlong(sample: Sample, *, max_tokens: int = 0) -> bool:
    """Returns whether overlong filtering masks the loss of this episode, instead of punishing it.

    It does when a token budget cut the episode off, or it has more than `max_tokens` model tokens: what stands in tool
    answers is not the policy's doing. Estimators leave a masked row out of the group's mean.

    Args:
        sample: the episode.
        max_tokens: most model tokens; 0 for no such limit.

    Paper: https://arxiv.org/abs/2503.14476 (section 3.4, "Overlong Filtering")
    """
    return sample.stop_reason in _CUT_OFF or 0 < max_tokens < sample.num_model_tokens
