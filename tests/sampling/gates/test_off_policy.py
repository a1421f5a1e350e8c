"""Episodes that another policy played: by the age of its weights, and by how far its tokens are from ours."""

from __future__ import annotations

import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.sampling.gate import Group, Session, Verdict, load_gate


def by_lag(lags: list[int], **options: int) -> Verdict:
    group = Group(uid="g", sessions=tuple(Session(lag=lag) for lag in lags))
    return load_gate("off_policy").with_options(**options).judge([group])[0]


def by_ratio(ratios: list[float | None], **options: float) -> Verdict:
    group = Group(uid="g", sessions=tuple(Session(ratio=ratio, is_void=ratio is None) for ratio in ratios))
    return load_gate("off_policy_ratio").with_options(**options).judge([group])[0]


def test_sessions_of_old_weights_are_dropped() -> None:
    assert by_lag([0, 1, 2, 3], max_lag=1).sessions == {2, 3}
    assert by_lag([0, 0], max_lag=0) == Verdict()
    assert by_lag([2, 3], max_lag=1).dropped == "off_policy"


def test_the_vector_of_icepop_drops_what_lies_outside_of_its_bounds() -> None:
    # V-IS: ratios [.3, 1, 2.5, 8], bounds [.5, 5] -> [0, 1, 2.5, 0].
    assert by_ratio([0.3, 1.0, 2.5, 8.0], low=0.5, high=5.0).sessions == {0, 3}
    assert by_ratio([0.5, 5.0]) == Verdict(), "the bounds are inside, and the defaults"


def test_void_sessions_are_left_alone_and_a_group_without_any_other_goes() -> None:
    assert by_ratio([None, 0.3, 1.0]).sessions == {1}
    assert by_ratio([None, 0.3, float("nan")]).dropped == "off_policy"
    assert by_ratio([None]) == Verdict()


def test_what_a_script_wrote_is_not_compared_with_a_policy_of_its_own() -> None:
    # Its log-probs are 0: it writes what it writes with certainty.
    shown, close, far = Session(ratio=0.01, is_external=True), Session(ratio=1.0), Session(ratio=8.0)
    gate = load_gate("off_policy_ratio").with_options()
    assert gate.judge([Group(uid="g", sessions=(shown, close, far))])[0].sessions == {2}


def test_impossible_bounds_are_refused() -> None:
    for bad in (-1, True, 0.5):
        with pytest.raises(ConfigError, match="max_lag"):
            by_lag([], max_lag=bad)
    with pytest.raises(ConfigError, match="2 and 5"):
        by_ratio([], low=2)
