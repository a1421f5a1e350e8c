"""The variance of a sum over turns, as a function of their number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verl_agentic.base.errors import DataError


def variance_of_sum(num_turns: int, *, variance: float, correlation: float) -> float:
    """Returns the variance of a sum of T numbers of variance s^2 and pairwise correlation rho: T s^2 (1 + (T - 1) rho).

    It grows linearly in T without correlation, and quadratically with correlation.

    Args:
        num_turns: T.
        variance: s^2.
        correlation: rho, -1 / (T - 1) to 1.
    """
    return num_turns * variance * (1 + (num_turns - 1) * correlation)


def turn_correlation(scores: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Returns the variance of the scores of a turn and the correlation of two turns of an episode: s^2 and rho.

    With them, `variance_of_sum` equals the variance of the episodes' sums. The correlation is 0 if the scores do not
    vary.

    Args:
        scores: of every turn of every episode; at least two episodes of the same number of turns, at least two.

    Raises:
        DataError: there are fewer.
    """
    if len({len(row) for row in scores}) != 1 or len(scores) < 2 or len(scores[0]) < 2:
        raise DataError(
            "correlation needs two or more episodes of the same number of turns, two or more, got lengths "
            f"{[len(row) for row in scores]}; choose such episodes"
        )
    array = np.asarray(scores, dtype=np.float64)
    num_turns, variance = array.shape[1], float(array.var(axis=0, ddof=1).mean())
    # Equal scores give rounding errors, not exactly 0.
    if variance <= 1e-12 * float(np.square(array).mean()):
        return 0.0, 0.0
    of_sums = float(array.sum(axis=1).var(ddof=1))
    return variance, (of_sums / (num_turns * variance) - 1) / (num_turns - 1)
