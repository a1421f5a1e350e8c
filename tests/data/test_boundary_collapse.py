"""Collapse of the capability boundary: pass@1 rises while pass@k falls."""

from __future__ import annotations

import pytest

from verl_agentic.data.boundary_collapse import boundary_complaint
from verl_agentic.errors import ConfigError

BASE = {1: 0.3, 64: 0.8}


def test_a_surer_policy_that_reaches_less_is_flagged() -> None:
    message = str(boundary_complaint(BASE, {1: 0.5, 8: 0.6, 64: 0.7}))
    assert message.startswith("the boundary of what the policy can do has shrunk: pass@1 rose from 0.3 to 0.5, but "
                              "pass@64 fell from 0.8 to 0.7")  # fmt: skip


@pytest.mark.parametrize("now", [{1: 0.5, 64: 0.8}, {1: 0.3, 64: 0.7}, {1: 0.2, 64: 0.7}, {1: 0.5, 64: 0.9}])
def test_other_changes_are_not(now: dict[int, float]) -> None:
    assert boundary_complaint(BASE, now) is None


def test_a_fall_within_the_margin_is_none() -> None:
    assert boundary_complaint(BASE, {1: 0.5, 64: 0.7}, margin=0.15) is None
    assert boundary_complaint(BASE, {1: 0.5, 64: 0.7}, margin=0.05) is not None


@pytest.mark.parametrize("now", [{1: 0.5, 32: 0.7}, {64: 0.7}, {}])
def test_both_must_have_the_same_k(now: dict[int, float]) -> None:
    with pytest.raises(ConfigError, match="both must have pass@1"):
        boundary_complaint(BASE, now)
