"""Rewards of one group on a common scale."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

_EPSILON = 1e-6


def z_scores(rewards: Sequence[float]) -> list[float]:
    """Returns `(r - mean) / (std + 1e-6)` with ddof 1; zeros where all are the same, or there is but one."""
    if len(rewards) < 2 or min(rewards) == max(rewards):
        return [0.0] * len(rewards)
    mean, std = statistics.fmean(rewards), statistics.stdev(rewards)
    return [(reward - mean) / (std + _EPSILON) for reward in rewards]
