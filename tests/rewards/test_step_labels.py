"""Labels of steps and values of states, from what became of continuations."""

from __future__ import annotations

import pytest

from verl_agentic.errors import DataError
from verl_agentic.rewards.step_labels import hard_label, state_value, step_labels

OUTCOMES = [[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]]


def test_labels_give_the_vectors() -> None:
    # vectors.json, V-PRM
    assert step_labels(OUTCOMES, soft=False) == [1, 0, 1]
    assert step_labels(OUTCOMES) == [0.5, 0, 1.0]


def test_the_value_of_a_state_is_the_success_rate_of_its_continuations() -> None:
    assert state_value([1, 0, 0]) == pytest.approx(1 / 3)
    assert state_value([1]) == 1.0 and state_value([0.5, 1.0]) == 0.75
    assert hard_label([0.5, 0.9]) == 0.0  # a partial outcome is not right


@pytest.mark.parametrize("outcomes", [[], [2], [-1, 0], [float("nan")]])
def test_a_step_without_outcomes_has_no_label(outcomes: list[float]) -> None:
    for label in (hard_label, state_value):
        with pytest.raises(DataError):
            label(outcomes)
