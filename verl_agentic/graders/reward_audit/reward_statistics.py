"""Statistics of rewards: shares of variance, rank correlation, percentiles."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence


def variance_shares(groups: Sequence[Sequence[Mapping[str, float]]]) -> dict[str, float] | None:
    """Returns each part's share of the variance of the reward inside groups; None without variance.

    share(part) = sum (part - its group's mean) (reward - its group's mean) / sum (reward - its group's mean)^2, over
    all samples, with reward = sum of the parts. Shares sum to 1. A negative share reduces the variance.

    Args:
        groups: parts of every sample, per group, under equal names.
    """
    shared: dict[str, float] = {}
    total = 0.0
    for group in groups:
        rewards = _centre_values([sum(parts.values()) for parts in group])
        total += sum(reward * reward for reward in rewards)
        for name in group[0] if group else ():
            part = _centre_values([parts[name] for parts in group])
            shared[name] = shared.get(name, 0.0) + sum(p * r for p, r in zip(part, rewards, strict=True))
    return {name: value / total for name, value in shared.items()} if total > 1e-12 else None


def is_constant(groups: Sequence[Sequence[float]]) -> bool:
    """Returns whether values never differ inside a group; if no group has two, whether all values are equal.

    False for fewer than two values.
    """
    several = [group for group in groups if len(group) > 1]
    compared = several or [[value for group in groups for value in group]]
    return len(compared[0]) > 1 and all(max(group) - min(group) <= 1e-9 for group in compared)


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Returns the rank correlation of two series, ties by their mean rank; None if one of them is constant."""
    if len(first) < 2:
        return None
    a, b = _centre_values(_rank_values(first)), _centre_values(_rank_values(second))
    scale = math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
    return sum(x * y for x, y in zip(a, b, strict=True)) / scale if scale else None


def percentile(values: Sequence[float], share: float) -> float:
    """Returns a percentile, interpolated between neighbours."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _centre_values(values: Sequence[float]) -> list[float]:
    mean = statistics.fmean(values) if values else 0.0
    return [value - mean for value in values]


def _rank_values(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=lambda index: values[index])
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for index in order[start : end + 1]:
            ranks[index] = (start + end) / 2
        start = end + 1
    return ranks
