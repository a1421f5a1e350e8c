"""Instructions are drawn by their weights, paid by their groups, tried before they join, and leave for good."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.methods.instructions import InstructionPopulation, draw_probabilities
from verl_agentic.sampling.curriculum import InstructionSettings


def population(*texts: str, **options: Any) -> InstructionPopulation:
    settings = InstructionSettings(initial=texts or ("plain", "careful"), **options)
    return InstructionPopulation(settings=settings, rng=np.random.default_rng(0))


def play(found: InstructionPopulation, outcome: dict[str, float], *, groups: int) -> list[str]:
    """Plays groups one after the other; returns their instructions."""
    drawn = []
    for number in range(groups):
        drawn.append(found.draw(f"u{number}", "a task"))
        found.report({f"u{number}": [outcome[drawn[-1]]] * 2})
    return drawn


def weights(found: InstructionPopulation) -> dict[str, float]:
    return {one.text: one.weight for one in found.living}


def test_instructions_are_drawn_by_the_softmax_of_the_vector() -> None:
    drawn = draw_probabilities([0.5, 0.2, 0.0], temperature=0.1)  # vectors.json, V-INSPO
    assert drawn.tolist() == pytest.approx([0.946499, 0.047123, 0.006377], abs=1e-6)


def test_draws_follow_the_weights() -> None:
    found = population("a", "b", "c", temperature=0.1)
    for one, weight in zip(found.living, (0.5, 0.2, 0.0), strict=True):
        one.weight, one.groups = weight, 1
    drawn = [found.draw(f"u{number}", "") for number in range(2_000)]
    assert drawn.count("a") / 2_000 == pytest.approx(0.946, abs=0.02) and drawn.count("b") > drawn.count("c")


def test_the_outcome_of_a_group_moves_the_weight_of_its_own_instruction() -> None:
    found = population("a", "b", memory=0.5)
    assert [found.draw("u", "task"), found.draw("v", "task")] == ["a", "b"]  # each is drawn once at the start
    found.report({"u": [1.0, 0.0], "unknown": [1.0]})
    found.report({"v": []})  # all of its attempts were void
    assert weights(found) == {"a": 0.5, "b": 0.0}
    assert found.draw("w", "task") == "b"  # again, as it has no outcome
    found.report({"w": [0.25, 0.25]})
    uid = next(uid for uid in map(str, range(100)) if found.draw(uid, "task") == "a")
    found.report({uid: [1.0, 1.0]})
    assert weights(found) == {"a": 0.75, "b": 0.25}


def test_a_new_instruction_joins_only_if_its_trial_is_as_good_as_the_worst() -> None:
    outcome = {"plain": 0.5, "careful": 0.5, "good": 1.0, "bad": 0.0}
    found = population(trial_groups=3)
    play(found, outcome, groups=30)
    assert found.propose(" good ") and found.propose("bad") and not found.propose("plain") and not found.propose(" ")
    assert play(found, outcome, groups=6) == ["good"] * 3 + ["bad"] * 3
    assert weights(found)["good"] == 1.0 and "bad" not in weights(found)
    assert "bad" not in play(found, outcome, groups=200) and not found.propose("bad")


def test_the_worst_leaves_a_full_population_and_is_never_drawn_again() -> None:
    outcome = {"plain": 0.1, "careful": 0.6, "good": 1.0}
    found = population(size=2, trial_groups=1, temperature=10.0)
    play(found, outcome, groups=30)
    assert found.propose("good")
    play(found, outcome, groups=1)
    assert set(weights(found)) == {"careful", "good"} and found.gone == {"plain"}
    assert "plain" not in play(found, outcome, groups=200) and not found.propose("plain")


def test_a_trial_takes_no_more_groups_than_it_needs_while_they_are_played() -> None:
    found = population(trial_groups=2)
    found.propose("new")
    drawn = [found.draw(f"u{number}", "") for number in range(5)]
    assert drawn[:2] == ["new", "new"] and "new" not in drawn[2:]


def test_a_resumed_population_goes_on_as_if_never_stopped() -> None:
    outcome = {"plain": 0.2, "careful": 0.6, "new": 0.7}
    found, resumed = population(), population()
    play(found, outcome, groups=10)
    found.propose("new")
    resumed.load_state_dict(found.state_dict())
    assert play(found, outcome, groups=40) == play(resumed, outcome, groups=40)
    assert found.state_dict() == resumed.state_dict()


def test_the_reflection_shows_instructions_by_success_and_the_tasks_of_least() -> None:
    found = population()
    play(found, {"plain": 0.25, "careful": 0.75}, groups=40)
    asked = found.reflection()
    assert asked.index("0.75: 'careful'") < asked.index("0.25: 'plain'")
    assert asked.count(": a task") == 8 and asked.index("success 0.25 with 'plain'") < asked.index("success 0.75 with")


@pytest.mark.parametrize("initial", [[], ["a", "a"], ["a", "b", "c"]])
def test_first_instructions_differ_and_fit(initial: list[str]) -> None:
    with pytest.raises(ConfigError, match="initial"):
        InstructionSettings(initial=initial, size=2)
