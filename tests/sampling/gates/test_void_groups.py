"""Groups in which too few episodes are left to compare."""

from __future__ import annotations

import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.sampling.gate import Group, Session, load_gate


def reason(is_void: list[bool], **options: int) -> str:
    sessions = tuple(Session(is_void=void) for void in is_void)
    return load_gate("void_groups").with_options(**options).judge([Group(uid="g", sessions=sessions)])[0].dropped


def test_a_lone_survivor_has_nobody_to_be_compared_with() -> None:
    assert reason([False, True, True]) == reason([True]) == reason([]) == "void"
    assert reason([False, False, True]) == ""


def test_what_a_script_played_is_a_sibling_but_nothing_without_one_of_the_policys_own() -> None:
    gate, shown = load_gate("void_groups").with_options(), Session(is_external=True)
    assert gate.judge([Group(uid="g", sessions=(shown, shown, Session(is_void=True)))])[0].dropped == "void"
    assert not gate.judge([Group(uid="g", sessions=(shown, Session()))])[0].dropped


def test_the_least_number_is_an_option() -> None:
    assert reason([False, False], min_valid=3) == "void" and reason([False], min_valid=1) == ""


@pytest.mark.parametrize("bad", [0, True, 1.5])
def test_an_impossible_number_is_refused(bad: int) -> None:
    with pytest.raises(ConfigError, match="min_valid"):
        reason([], min_valid=bad)
