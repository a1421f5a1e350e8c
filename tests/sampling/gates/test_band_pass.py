"""Tasks that are nearly always, or nearly never, solved."""

from __future__ import annotations

import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.sampling.gate import Group, Session, load_gate


def reason(accs: list[float | None], **options: float) -> str:
    sessions = tuple(Session(acc=acc, is_void=acc is None) for acc in accs)
    return load_gate("band_pass").with_options(**options).judge([Group(uid="g", sessions=sessions)])[0].dropped


@pytest.mark.parametrize(
    ("accs", "said"),
    [
        ([0, 0, 0, 0], "too_hard"),
        ([1, 0, 0, 0], ""),
        ([1, 1, 1, 0], ""),
        ([1, 1, 1, 1], "too_easy"),
        ([1, 1, 1, 1, 0], "too_easy"),
        ([1, 1, 1, 0, None], ""),  # 3/4, not 3/5: the void one does not count
        ([None], ""),
    ],
)
def test_groups_between_the_bounds_are_kept_and_the_bounds_are_inside(accs: list[float | None], said: str) -> None:
    assert reason(accs, low=0.25, high=0.75) == said


def test_impossible_bounds_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"0\.8"):
        reason([], low=0.8, high=0.2)
    with pytest.raises(ConfigError, match="nan"):
        reason([], low=float("nan"), high=0.2)
    with pytest.raises(ConfigError, match="'high'"):
        reason([], low=0.8)


def test_what_a_script_solved_says_nothing_of_how_hard_a_task_is() -> None:
    sessions = (Session(acc=1.0, is_external=True), Session(acc=0.0), Session(acc=0.0))
    gate = load_gate("band_pass").with_options(low=0.25, high=0.75)
    assert gate.judge([Group(uid="g", sessions=sessions)])[0].dropped == "too_hard"
