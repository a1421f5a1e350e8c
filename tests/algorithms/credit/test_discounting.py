"""Discounting: the vectors, and the message where it leaves nothing."""

from __future__ import annotations

import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.credit.credit.discounting import discount_complaint, sparse_value


def test_the_value_of_a_sparse_outcome_is_that_of_the_vector() -> None:
    found = [sparse_value(0.3, gamma=0.99, steps_left=50 - t) for t in (0, 25, 49)]
    assert found == pytest.approx([0.181502, 0.233346, 0.297], abs=1e-6)


def test_a_discount_that_swallows_the_outcome_is_told_with_the_way_out() -> None:
    # 0.99 ** 230 is the first below 0.1.
    assert discount_complaint(gamma=0.99, steps=230) == (
        "gamma 0.99 leaves 0.0991 of an outcome after 230 steps, got less than 0.1; the first steps learn next to "
        "nothing: set gamma to at least 0.9900, or to 1, or discount turns"
    )
    assert "gamma to at least 0.9977" in str(discount_complaint(gamma=0.99, steps=1000))
    assert discount_complaint(gamma=0.99, steps=229) is None
    assert discount_complaint(gamma=1.0, steps=10**6) is None
    with pytest.raises(ConfigError, match="gamma in"):
        discount_complaint(gamma=1.5, steps=2)
