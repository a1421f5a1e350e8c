"""Which of several policies, checkpoints or rubrics is a matter of taste, and which are worse than another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from verl_agentic.errors import DataError


def pareto_front(points: Mapping[str, Sequence[float]]) -> list[str]:
    """Returns the names of the points that no other one dominates, in order.

    A point dominates another one where it is at least as good in every part and better in one. Equal points do not
    dominate each other.

    Args:
        points: name -> parts, each the more the better: a cost with a minus sign.

    Raises:
        DataError: the points do not have the same parts, or a part is not finite.
    """
    if len({len(point) for point in points.values()}) > 1 or any(x - x != 0 for p in points.values() for x in p):
        raise DataError(f"points need the same number of finite parts, got {dict(points)}; leave out what lacks one")
    return [name for name, point in points.items() if not any(_dominates(other, point) for other in points.values())]


def _dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    return tuple(one) != tuple(other) and all(a >= b for a, b in zip(one, other, strict=True))
