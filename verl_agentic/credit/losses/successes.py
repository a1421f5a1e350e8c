"""Rows of a batch that succeeded, and their share of its tokens."""

from __future__ import annotations

from torch import Tensor

_FULL = 1.0 - 1e-9


def is_success(outcome_B: Tensor) -> Tensor:
    """Returns `[B]` bool: rows with the full raw outcome; false for NaN."""
    return outcome_B.float() >= _FULL


def positive_share(outcome_B: Tensor, num_tokens_B: Tensor) -> float:
    """Returns the share of a batch's sampled tokens that lie in successful rows; 0 without any."""
    return float((num_tokens_B * is_success(outcome_B)).sum() / num_tokens_B.sum().clamp(min=1))
