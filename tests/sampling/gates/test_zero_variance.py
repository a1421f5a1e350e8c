"""Groups whose episodes all ended the same: exactly, on the raw outcome, among valid sessions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.base.errors import DataError
from verl_agentic.sampling.gate import Group, Session, load_gate

GATE = load_gate("zero_variance").with_options()


def group(accs: list[float | None], rewards: list[float] | None = None) -> Group:
    """None is a void session."""
    pairs = zip(accs, rewards or [a or 0.0 for a in accs], strict=True)
    return Group(uid="g", sessions=tuple(Session(acc=a or 0.0, reward=r, is_void=a is None) for a, r in pairs))


def reason(accs: list[float | None], rewards: list[float] | None = None) -> str:
    return GATE.judge([group(accs, rewards)])[0].dropped


# V-DYNSAMP.
VECTOR: dict[str, list[float]] = {
    "g1": [1, 1, 1, 1],
    "g2": [1, 0, 1, 0],
    "g3": [0, 0, 0, 0],
    "g4": [1, 1, 1, 0],
    "g5": [0.9, 1.0, 1.0, 0.8],
}


def test_the_vector_by_value_keeps_three() -> None:
    assert [name for name, values in VECTOR.items() if not reason(list(values))] == ["g2", "g4", "g5"]


def test_the_vector_by_outcome_drops_right_answers_of_different_length() -> None:
    assert reason([1, 1, 1, 1], rewards=VECTOR["g5"]) == "all_1"


def test_the_reason_tells_all_wrong_from_all_right_from_the_rest() -> None:
    assert [reason([v, v]) for v in (0.0, 1.0, 0.5)] == ["all_0", "all_1", "all_same"]


def test_equal_values_are_equal_whatever_their_standard_deviation_is() -> None:
    # Means of 0.1 and of 1e-200 squared are not exact: verl 0.9.1 keeps the first group and drops the second.
    assert np.std([0.1, 0.1, 0.1]) > 0 and reason([0.1, 0.1, 0.1]) == "all_same"
    assert np.std([1e-200, 2e-200]) == 0 and reason([1e-200, 2e-200]) == ""


def test_void_sessions_have_no_say() -> None:
    assert reason([1, 1, None]) == "all_1" and reason([1, 0, None]) == ""
    assert reason([1, None]) == reason([None, None]) == reason([1]) == "", "void_groups decides about those"


def test_an_unknown_outcome_is_an_error() -> None:
    with pytest.raises(DataError, match="'acc'"):
        GATE.judge([Group(uid="g", sessions=(Session(), Session()))])


@given(st.lists(st.floats(allow_nan=False), min_size=2, max_size=6), st.randoms())
def test_order_does_not_matter(values: list[float], rng: object) -> None:
    shuffled = sorted(values)
    assert bool(reason(list(values))) == bool(reason(list(shuffled))) == (len(set(values)) == 1)


def test_a_solution_that_is_shown_is_something_to_compare_failures_with() -> None:
    sessions = (Session(acc=1.0, is_external=True), Session(acc=0.0), Session(acc=0.0))
    assert not GATE.judge([Group(uid="g", sessions=sessions)])[0].dropped
