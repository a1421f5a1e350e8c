"""DAPO's soft punishment of responses that come near the limit."""

from __future__ import annotations

from verl_agentic.errors import ConfigError
from verl_agentic.rewards.component import component
from verl_agentic.rewards.sample import Sample


def overlong_penalty(tokens: int, *, max_tokens: int, buffer_tokens: int) -> float:
    """Returns 0 up to max_tokens - buffer_tokens, falls linearly to -1 at max_tokens, and stays there."""
    return -min(max((tokens - (max_tokens - buffer_tokens)) / buffer_tokens, 0.0), 1.0)


def _check(max_tokens: int, buffer_tokens: int) -> None:
    if not 0 < buffer_tokens <= max_tokens:
        raise ConfigError(
            f"overlong.buffer_tokens must be from 1 to max_tokens, got {buffer_tokens} and max_tokens {max_tokens}"
        )


@component(low=-1.0, high=0.0, inline=True, check=_check)
def overlong(sample: Sample, *, max_tokens: int = 20480, buffer_tokens: int = 4096) -> float:
    """Returns the punishment for the length of what the policy wrote, from -1 to 0.

    Only tokens that the policy sampled count: a search that answers 19,000 tokens is not its doing. verl's `dapo`
    reward manager counts those, and falls below -1 where a response may be longer than its `max_resp_len`.

    Args:
        max_tokens: length at which it is -1.
        buffer_tokens: over which it falls.

    Paper: https://arxiv.org/abs/2503.14476 (eq. 13)
    """
    return overlong_penalty(sample.num_model_tokens, max_tokens=max_tokens, buffer_tokens=buffer_tokens)
