"""A linear learning rate."""

from __future__ import annotations

import pytest

from verl_agentic.methods.losses.linear_lr import linear_lr_factor


@pytest.mark.parametrize(("step", "factor"), [(1, 1.0), (51, 0.5), (100, 0.01), (101, 0.0), (200, 0.0)])
def test_half_of_the_rate_is_left_at_half_of_the_run(step: int, factor: float) -> None:
    assert linear_lr_factor(step, num_steps=100) == pytest.approx(factor)


def test_the_end_is_the_minimum() -> None:
    assert linear_lr_factor(11, num_steps=10, min_ratio=0.1) == pytest.approx(0.1)
    assert linear_lr_factor(6, num_steps=10, min_ratio=0.1) == pytest.approx(0.55)
