"""The Pareto front: what nothing else beats in every part."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.base.errors import DataError
from verl_agentic.graders.groups.pareto import pareto_front

PARTS = st.lists(st.integers(-3, 3), min_size=3, max_size=3)


def test_the_front_is_that_of_the_vector() -> None:
    # vectors.json, V-PARETO: success, safety, -cost
    points = {"a": [0.8, 0.9, -3], "b": [0.7, 0.9, -3], "c": [0.6, 1.0, -1], "d": [0.8, 0.9, -4]}
    assert pareto_front(points) == ["a", "c"]


@given(st.lists(PARTS, min_size=1, max_size=8))
def test_whatever_is_not_on_the_front_is_beaten_by_something_on_it(parts: list[list[int]]) -> None:
    points = {str(index): part for index, part in enumerate(parts)}
    front = pareto_front(points)
    assert front and {str(parts.index(max(parts)))} <= set(front)
    for name, point in points.items():
        beaten = any(
            points[one] != point and all(a >= b for a, b in zip(points[one], point, strict=True)) for one in front
        )
        assert beaten != (name in front)


@pytest.mark.parametrize("points", [{"a": [1], "b": [1, 2]}, {"a": [float("nan")]}, {"a": [float("inf")]}])
def test_points_that_cannot_be_compared_are_refused(points: dict[str, list[float]]) -> None:
    with pytest.raises(DataError, match="parts"):
        pareto_front(points)
