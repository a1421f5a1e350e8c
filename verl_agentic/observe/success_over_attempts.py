"""Success over repeated attempts at tasks: pass@k, pass^k, clustered standard errors, intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from verl_agentic.base.errors import ConfigError

_Z = 1.959963984540054  # 97.5 % of a standard normal variable lie below


def pass_at_k(n: int, c: int, k: int) -> float:
    """Returns the unbiased estimate of P(at least one of k attempts succeeds): `1 - C(n-c, k) / C(n, k)`.

    verl's `best@k` draws the k attempts with replacement, so it is lower for tasks that were solved once or more.

    Args:
        n: attempts that were made.
        c: number of successes.
        k: 1 to n.

    Raises:
        ConfigError: not 0 <= c <= n, or not 1 <= k <= n.

    Paper: https://arxiv.org/abs/2107.03374 (eq. 1)
    """
    _check_counts(n, c, k)
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Returns the unbiased estimate of P(all of k attempts succeed), pass^k: `C(c, k) / C(n, k)`.

    Args:
        n, c, k: as in `pass_at_k`.

    Raises:
        ConfigError: not 0 <= c <= n, or not 1 <= k <= n.

    Paper: https://arxiv.org/abs/2406.12045
    """
    _check_counts(n, c, k)
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

    Attempts at one task are correlated; treating them as independent makes the error too small. With m the mean, N
    attempts and G tasks: `sqrt(G / (G-1) * sum_g (sum_{i in g} (x_i - m))^2) / N`. With one attempt per task it is the
    usual standard error.

    Args:
        groups: values of each task's attempts; empty tasks are ignored.

    Raises:
        ConfigError: there is no attempt at all.

    Paper: https://arxiv.org/abs/2411.00640 (clustered standard errors), with the factor G / (G-1) for few tasks
    """
    tasks = [group for group in groups if group]
    count = sum(map(len, tasks))
    if not count:
        raise ConfigError("a mean needs at least one attempt, got none; run some episodes first")
    mean = sum(map(sum, tasks)) / count
    if len(tasks) < 2:
        return Mean(value=mean, stderr=None, count=count)
    squares = sum(sum(x - mean for x in group) ** 2 for group in tasks)
    stderr = math.sqrt(len(tasks) / (len(tasks) - 1) * squares) / count
    return Mean(value=mean, stderr=stderr, count=count)


def proportion_interval(successes: float, count: float) -> tuple[float, float]:
    """Returns the 95 % Wilson score interval of a proportion, which is also valid at 0 and 1.

    Args:
        count: independent attempts, above 0; may be fractional (an effective sample size).

    Raises:
        ConfigError: not 0 <= successes <= count, or no attempts.

    Paper: https://doi.org/10.1080/01621459.1927.10502953
    """
    if not 0 <= successes <= count or not count:
        raise ConfigError(f"an interval needs 0 <= successes <= count, got {successes} of {count}; fix the counts")
    share, per_attempt = successes / count, _Z**2 / count
    centre = (share + per_attempt / 2) / (1 + per_attempt)
    half = math.sqrt(per_attempt * share * (1 - share) + (per_attempt / 2) ** 2) / (1 + per_attempt)
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == count else min(1.0, centre + half)
    return min(low, share), max(high, share)


def success_interval(groups: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Returns the 95 % Wilson interval of a success rate over several tasks, clustered by task.

    The number of attempts is replaced by an effective one, `m (1-m) / stderr^2` with the clustered standard error. It
    lies between `N^2 / sum_g N_g^2` (all attempts at a task have the same result) and N (independent attempts). The
    lower bound is used where the standard error is uninformative: at 0, at 1, and for one task.

    Args:
        groups: 0 or 1 for each task's attempts; empty tasks are ignored.

    Raises:
        ConfigError: there is no attempt at all.
    """
    mean = clustered_mean(groups)
    min_effective = mean.count**2 / sum(len(group) ** 2 for group in groups)
    spread = mean.value * (1 - mean.value)
    if not spread or mean.stderr is None:
        effective = min_effective
    else:
        effective = min(max(spread / mean.stderr**2, min_effective), mean.count) if mean.stderr else mean.count
    return proportion_interval(mean.value * effective, effective)


def _check_counts(n: int, c: int, k: int) -> None:
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ConfigError(f"pass@k needs 0 <= c <= n and 1 <= k <= n, got n={n}, c={c}, k={k}; fix the counts")
