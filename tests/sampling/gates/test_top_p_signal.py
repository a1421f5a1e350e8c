"""StarPO-S: the groups whose rewards differ most."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.base.errors import ConfigError
from verl_agentic.sampling.gate import Group, Session, load_gate
from verl_agentic.sampling.gates.top_p_signal import top_fraction, top_share

STDS = [0.5, 0.4, 0.1, 0.0, 0.3]


def group(rewards: list[float], num_void: int = 0) -> Group:
    sessions = [Session(reward=reward) for reward in rewards] + [Session(is_void=True, reward=99.0)] * num_void
    return Group(uid="g", sessions=tuple(sessions))


def kept(groups: list[Group], **options: float) -> list[int]:
    verdicts = load_gate("top_p_signal").with_options(**options).judge(groups)
    assert all(verdict.dropped in ("", "weak_signal") for verdict in verdicts)
    return [place for place, verdict in enumerate(verdicts) if not verdict.dropped]


def test_the_vector_of_ragen() -> None:
    # V-STARPOS. Its groups here: two rewards, 0.5 +- std.
    groups = [group([0.5 + std, 0.5 - std], num_void=1) for std in STDS]
    assert kept(groups, fraction=0.4) == [0, 1]
    assert kept(groups, p=0.75) == [0, 1, 4]
    assert top_fraction(np.array(STDS), fraction=0.4) == {0, 1} and top_share(np.array(STDS), p=0.75) == {0, 1, 4}


def test_a_rest_below_the_slack_does_not_count() -> None:
    assert top_share(np.array([0.5, 0.25, 0.005]), p=1.0) == {0, 1}
    assert top_share(np.array([0.5, 0.25, 0.005]), p=1.0, slack=0.0) == {0, 1, 2}


def test_groups_without_a_signal_are_no_part_of_a_share() -> None:
    assert kept([group([1, 1]), group([])], p=0.9) == [] and kept([], p=0.9) == []
    assert kept([group([1, 1]), group([1, 0])], p=1.0) == [1]


def test_a_fraction_is_at_least_one_and_is_not_lost_to_rounding() -> None:
    assert top_fraction(np.arange(10.0), fraction=0.05) == {9}
    assert 0.29 * 100 < 29 and len(top_fraction(np.arange(100.0), fraction=0.29)) == 29
    assert top_fraction(np.array([]), fraction=0.5) == set()


def test_among_equal_signals_the_first_win() -> None:
    assert kept([group([1, 0])] * 4, fraction=0.5) == [0, 1] == kept([group([1, 0])] * 4, p=0.5)


@given(st.lists(st.floats(min_value=0, max_value=1e6), min_size=1, max_size=20), st.floats(min_value=0.01, max_value=1))
def test_a_share_is_reached_with_as_few_as_possible(signals: list[float], p: float) -> None:
    values = np.array(signals)
    chosen = sorted(values[list(top_share(values, p=p))])
    target = p * values.sum() - 0.01
    assert sum(chosen) >= target - 1e-6 * values.sum()
    assert len(chosen) <= 1 or sum(chosen[1:]) < target + 1e-6 * values.sum()


@pytest.mark.parametrize("options", [{}, {"p": 0.5, "fraction": 0.5}, {"p": 0}, {"fraction": 1.5}])
def test_exactly_one_share_is_wanted(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="top_p_signal"):
        kept([], **options)
