"""DAPO's soft penalty for responses near the length limit."""

from __future__ import annotations

from verl_agentic.base.errors import ConfigError
from verl_agentic.rewards.component import component
from verl_agentic.rewards.sample import Sample


def overlong_penalty(tokens: int, *, max_tokens: int, buffer_tokens: int) -> float:
    """Returns 0 up to max_tokens - buffer_tokens, falls linearly to -1 at max_tokens, and stays there."""
    return -min(max((tokens - (max_tokens - buffer_tokens)) / buffer_tokens, 0.0), 1.0)


def _check_options(max_tokens: int, buffer_tokens: int) -> None:
    if not 0 < buffer_tokens <= max_tokens:
        raise ConfigError(f"overlong.buffer_tokens must be from 1 to max_tokens, got {buffer_tokens} and {max_tokens}")


@component(low=-1.0, high=0.0, inline=True, check=_check_options)
def overlong(sample: Sample, *, max_tokens: int = 20480, buffer_tokens: int = 4096) -> float:
    """Returns the penalty for the number of sampled tokens, from -1 to 0.

    Tool output does not count. verl's `dapo` reward manager counts it, and falls below -1 for responses longer than its
    `max_resp_len`.

    Args:
        max_tokens: length at which the penalty is -1.
        buffer_tokens: length over which it falls from 0 to -1.

    Paper: https://arxiv.org/abs/2503.14476 (eq. 13)
    """
    return overlong_penalty(sample.num_model_tokens, max_tokens=max_tokens, buffer_tokens=buffer_tokens)
