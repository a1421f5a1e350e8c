"""Success over repeated attempts at the same tasks: pass@k, pass^k, and a standard error that knows of the tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from verl_agentic.errors import ConfigError


def pass_at_k(n: int, c: int, k: int) -> float:
    """Returns the unbiased estimate of P(at least one of k attempts succeeds): `1 - C(n-c, k) / C(n, k)`.

    verl's `best@k` draws the k attempts with replacement and is lower for a task that was ever solved.

    Args:
        n: attempts that were made.
        c: how many of them succeeded.
        k: attempts that are asked about, 1 to n.

    Raises:
        ConfigError: not 0 <= c <= n, or not 1 <= k <= n.

    Paper: https://arxiv.org/abs/2107.03374 (eq. 1)
    """
    _check(n, c, k)
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Returns the unbiased estimate of P(all of k attempts succeed), pass^k: `C(c, k) / C(n, k)`.

    Args:
        n: attempts that were made.
        c: how many of them succeeded.
        k: attempts that are asked about, 1 to n.

    Raises:
        ConfigError: not 0 <= c <= n, or not 1 <= k <= n.

    Paper: https://arxiv.org/abs/2406.12045
    """
    _check(n, c, k)
    return math.comb(c, k) / math.comb(n, k)


@dataclass(frozen=True, kw_only=True)
class Mean:
    """A mean over attempts at several tasks."""

    value: float
    stderr: float | None
    """Standard error, clustered by task; None for fewer than two tasks."""
    count: int
    """Attempts."""


def clustered_mean(groups: Sequence[Sequence[float]]) -> Mean:
    """Returns the mean over all attempts and its standard error, clustered by task.

    Attempts at one task go up and down together; counting them as independent makes the error too small. With m the
    mean, N attempts and G tasks: `sqrt(G / (G-1) * sum_g (sum_{i in g} (x_i - m))^2) / N`, which is the usual error of
    a mean where every task has one attempt.

    Args:
        groups: the values of each task's attempts; empty tasks are left out.

    Raises:
        ConfigError: there is no attempt at all.

    Paper: https://arxiv.org/abs/2411.00640 (clustered standard errors), with the factor G / (G-1) for few tasks
    """
    tasks = [group for group in groups if group]
    count = sum(map(len, tasks))
    if not count:
        raise ConfigError("a mean needs at least one attempt, got none; play some episodes first")
    mean = sum(map(sum, tasks)) / count
    if len(tasks) < 2:
        return Mean(value=mean, stderr=None, count=count)
    squares = sum(sum(x - mean for x in group) ** 2 for group in tasks)
    stderr = math.sqrt(len(tasks) / (len(tasks) - 1) * squares) / count
    return Mean(value=mean, stderr=stderr, count=count)


def _check(n: int, c: int, k: int) -> None:
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ConfigError(f"pass@k needs 0 <= c <= n and 1 <= k <= n, got n={n}, c={c}, k={k}; mend the counts")
