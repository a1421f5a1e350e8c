"""Labels of steps and values of states, from what became of continuations."""

from __future__ import annotations

import pytest
from samples import sample, turn

from verl_agentic.base.errors import ConfigError, DataError, ScoringError
from verl_agentic.graders.components.continuations import continuations
from verl_agentic.graders.turns.step_labels import hard_label, label_steps, state_value
from verl_agentic.rewards.component import ABSTAIN
from verl_agentic.rewards.sample import Sample

OUTCOMES = [[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]]


def test_labels_give_the_vectors() -> None:
    # vectors.json, V-PRM
    assert [hard_label(one) for one in OUTCOMES] == [1, 0, 1]
    assert [state_value(one) for one in OUTCOMES] == [0.5, 0, 1.0]


def test_the_value_of_a_state_is_the_success_rate_of_its_continuations() -> None:
    assert state_value([1, 0, 0]) == pytest.approx(1 / 3)
    assert state_value([1]) == 1.0 and state_value([0.5, 1.0]) == 0.75
    assert hard_label([0.5, 0.9]) == 0.0  # a partial outcome is not right


@pytest.mark.parametrize("outcomes", [[], [2], [-1, 0], [float("nan")]])
def test_a_step_without_outcomes_has_no_label(outcomes: list[float]) -> None:
    for label in (hard_label, state_value):
        with pytest.raises(DataError):
            label(outcomes)


def branched(*paths: str, outcomes: str) -> list[Sample]:
    """Returns a group of samples whose turns are letters, each answered with `o`."""
    return [
        sample([turn(letter, index=i, observations=["o"]) for i, letter in enumerate(path)], outcome=float(outcome))
        for path, outcome in zip(paths, outcomes, strict=True)
    ]


def test_siblings_that_share_a_state_are_its_continuations() -> None:
    # From `a` four went on, two of them right; from `ab` two, both right; `x` was gone on from once.
    group = branched("abc", "abd", "ace", "acf", "xbc", outcomes="11000")
    labels = label_steps(group, [s.env.outcome for s in group if s.env], continuations=2)
    values = [{index: (label.value, label.continuations) for index, label in known.items()} for known in labels]
    assert values == [{0: (0.5, 4), 1: (1.0, 2)}] * 2 + [{0: (0.5, 4), 1: (0.0, 2)}] * 2 + [{}]
    hard = label_steps(group, [1, 1, 0, 0, 0], continuations=4, soft=False)
    assert [known[0].value for known in hard[:4]] == [1.0] * 4 and hard[4] == {}


def test_what_was_observed_is_part_of_the_state() -> None:
    group = branched("ab", "ab", outcomes="10")
    other = sample([turn("a", index=0, observations=["other"]), turn("b", index=1)], outcome=1.0)
    labels = label_steps([*group, other], [1, 0, 1], continuations=2)
    assert labels[2] == {} and labels[0][0].value == 0.5


def test_the_component_pays_turns_by_the_share_of_their_continuations_that_succeed() -> None:
    group = branched("abc", "abd", "ace", "acf", "xbc", outcomes="11000")
    made = continuations.make({"k": 2})
    found = [made.checked(one) for one in made(group)]
    assert found[0].turns == pytest.approx({0: 0.5 / 3, 1: 1 / 3}) and found[0].value == pytest.approx(0.5)
    assert found[2].value == pytest.approx(0.5 / 3) and found[4] == ABSTAIN
    with pytest.raises(ConfigError, match="k"):
        continuations.make({"k": 1})
    with pytest.raises(ScoringError, match="no outcome"):
        made([sample("x")])
