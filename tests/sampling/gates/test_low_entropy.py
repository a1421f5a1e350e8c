"""Episodes of a policy that did not choose any more."""

from __future__ import annotations

import pytest

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.sampling.gate import Group, Session, Verdict, load_gate


def verdict(entropies: list[float | None], **options: float) -> Verdict:
    sessions = tuple(Session(entropy=h, is_void=h is None) for h in entropies)
    return load_gate("low_entropy").with_options(**options).judge([Group(uid="g", sessions=sessions)])[0]


def test_sessions_below_the_floor_are_dropped() -> None:
    assert verdict([0.02, 0.8], floor=0.05).sessions == {0}  # row F5
    assert verdict([0.05, 0.8], floor=0.05) == Verdict(), "the floor itself is kept"


def test_void_sessions_are_left_alone_and_a_group_without_any_other_goes() -> None:
    assert verdict([None, 0.02, 0.8]).sessions == {1}
    assert verdict([None, 0.02, 0.03]).dropped == "low_entropy"
    assert verdict([None]) == Verdict()


def test_what_a_script_played_is_not_judged_and_does_not_save_a_group() -> None:
    shown = Session(is_external=True)
    sure, unsure = Session(entropy=0.01), Session(entropy=0.8)
    low_entropy = load_gate("low_entropy").with_options()
    assert low_entropy.judge([Group(uid="g", sessions=(shown, sure, unsure))])[0].sessions == {1}
    assert low_entropy.judge([Group(uid="g", sessions=(shown, sure))])[0].dropped == "low_entropy"


def test_unknown_entropy_and_impossible_floors_are_refused() -> None:
    with pytest.raises(DataError, match="'entropy'"):
        load_gate("low_entropy").with_options().judge([Group(uid="g", sessions=(Session(),))])
    with pytest.raises(ConfigError, match="floor >= 0, got -1"):
        verdict([], floor=-1)
    with pytest.raises(ConfigError, match="'a'"):
        load_gate("low_entropy").with_options(floor="a")
