"""Rewards calls that succeed, and penalises calls that fail."""

from __future__ import annotations

from verl_agentic.rewards.answers.tool_calls import succeeded
from verl_agentic.rewards.component import Graded, component
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.turns import clip_total


@component(
    low=lambda success, failure, cap: -cap if min(success, -failure) < 0 else 0.0,
    high=lambda success, failure, cap: cap if max(success, -failure) > 0 else 0.0,
    inline=True,
)
def tool_outcomes(sample: Sample, *, success: float = 0.05, failure: float = 0.05, cap: float = 0.1) -> Graded:
    """Returns `success` per call that succeeded - `failure` per call that failed, within [-cap, cap].

    Each turn gets its own share. The content of results does not count. A call that did not run before the episode
    ended is neither.

    Args:
        success: reward of a call whose tool succeeded.
        failure: penalty of a call that could not be read or carried out, or whose tool failed.
        cap: maximum absolute reward; without it, the policy learns to call.
    """
    answered = [(turn.index, call) for turn in sample.turns for call in turn.calls if call.is_error or succeeded(call)]
    payments = ((turn, success if succeeded(call) else -failure) for turn, call in answered)
    return clip_total(payments, low=-cap, high=cap)
