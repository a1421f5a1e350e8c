"""The Pareto front of policies, checkpoints or rubrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from verl_agentic.base.errors import DataError


def pareto_front(points: Mapping[str, Sequence[float]]) -> list[str]:
    """Returns the names of the points that no other point dominates, in order.

    A point dominates another one if it is at least as good in every part and better in one.

    Args:
        points: name -> parts, higher is better (negate costs).

    Raises:
        DataError: the points do not have the same parts, or a part is not finite.
    """
    if len({len(point) for point in points.values()}) > 1 or any(x - x != 0 for p in points.values() for x in p):
        raise DataError(f"points need the same number of finite parts, got {dict(points)}; leave out what lacks one")
    return [
        name for name, point in points.items() if not any(_is_dominating(other, point) for other in points.values())
    ]


def _is_dominating(point: Sequence[float], other: Sequence[float]) -> bool:
    return tuple(point) != tuple(other) and all(a >= b for a, b in zip(point, other, strict=True))
