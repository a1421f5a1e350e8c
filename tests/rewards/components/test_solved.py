"""`acc` is 1 if the task is solved and 0 if not, whatever levels the outcome has."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from samples import call, sample, turn

from verl_agentic.base.errors import ScoringError
from verl_agentic.config.recipe_groups import load_recipe
from verl_agentic.graders import functions
from verl_agentic.rewards.component import Graded, component
from verl_agentic.rewards.rubric import Rubric
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.score import Score
from verl_agentic.rewards.scorer import Scorer
from verl_agentic.sampling.gate import Group, Session, decide, to_gates


async def scores(components: Sequence[Mapping[str, Any]], samples: Sequence[Sample]) -> list[Score]:
    scorer = Scorer(Rubric.from_mapping({"components": components, "on_error": "stop"}), workers=1)
    with contextlib.closing(scorer):
        return await scorer.score_group(samples)


def rubric_of(system: str) -> list[Mapping[str, Any]]:
    """Returns the components of a system's own rubric."""
    values = [one.value for one in load_recipe("system", system).values if one.key.startswith("agentic.rubric.comp")]
    return values[0] if isinstance(values[0], list) else values


def searched(answer: str) -> Sample:
    turns = [turn("<think>t</think>\n<search>m: q</search>", call(), observations=["found"])]
    text = rf"<think>u</think><answer>\boxed{{{answer}}}</answer>"
    return sample([*turns, turn(text, index=1)], ground_truth="Paris", final_answer=text)


def routed(answer: str) -> Sample:
    return sample(f"<think>t</think>\n<answer>{answer}</answer>", ground_truth="Paris", outcome=0.0, info={"cost": 0.0})


def calculated(answer: str, *, calls: int = 0) -> Sample:
    turns = [turn("x", call("python", code="1"), index=index) for index in range(calls)]
    return sample([*turns, turn(rf"\boxed{{{answer}}}", index=calls)], ground_truth="2")


OLD, NEW = {"a.py": "x = 1\ny = 1\n"}, {"a.py": "x = 2\ny = 1\n"}


def edited(line: str) -> Sample:
    text = f"```python\n### a.py\n<<<<<<< SEARCH\n{line} = 1\n=======\n{line} = 2\n>>>>>>> REPLACE\n```"
    return sample(text, ground_truth={"code_context": OLD, "oracle_new_content": NEW})


def called(*names: str) -> Sample:
    text = "<think>t</think>" + "".join(f'\n<tool_call>\n{{"name": "{name}"}}\n</tool_call>' for name in names)
    return sample([turn(text, *map(call, names))], ground_truth=[{"name": "f", "arguments": {}}])


def programmed(code: str) -> Sample:
    tests = {"inputs": ["1\n", "2\n"], "outputs": ["1\n", "2\n"]}
    return sample(f"```python\n{code}\n```", ground_truth=tests)


RIGHT_PROGRAM = "print(input())"
WRONG_PROGRAMS = [programmed("print(1)"), programmed("raise OSError"), programmed("print(")]
SYSTEMS: Mapping[str, tuple[Sample, list[Sample]]] = {
    "router_r1": (routed("Paris"), [routed("Rome"), sample("Rome", ground_truth="Paris")]),
    "arpo": (searched("Paris"), [searched("Rome"), sample("Paris", ground_truth="Paris")]),
    "research": (searched("Paris"), [searched("Rome"), sample("Paris", ground_truth="Paris")]),
    "ssrl": (routed("Paris"), [routed("Rome"), sample("Rome", ground_truth="Paris")]),
    "swe_rl": (edited("x"), [edited("y"), sample("no edit", ground_truth=edited("x").ground_truth)]),
    "coderl": (programmed(RIGHT_PROGRAM), WRONG_PROGRAMS),
    "grpo_tcr": (calculated("2"), [calculated("1", calls=calls) for calls in (0, 1, 4, 8)]),
    "reft": (calculated("2"), [calculated("1"), sample("no box", ground_truth="2")]),
    "toolrl": (called("f"), [called(), called("g"), called("f", "g")]),
}
"""System -> a right episode, and wrong ones with different rewards."""
COMPONENTS: Mapping[str, tuple[Mapping[str, Any], Sample, list[Sample]]] = {
    "code_tests": ({"partial": True}, programmed(RIGHT_PROGRAM), WRONG_PROGRAMS),
    "search_r1_format": (
        {},
        sample("so <answer>Paris</answer>", ground_truth="Paris"),
        [routed("Rome"), sample("<answer>Rome</answer>", ground_truth="Paris")],
    ),
    "toolrl_efficiency": ({}, called("f"), [called("g"), called("f", "g")]),
    "cursor_tab": ({}, sample("x", ground_truth="x"), [sample("y", ground_truth="x"), sample("", ground_truth="x")]),
    "prs": (
        {},
        sample("Paris", ground_truth="Paris"),
        [sample("Rome", ground_truth="Paris"), sample(ground_truth="a")],
    ),
    "retool": ({"soften_wrong": True}, calculated("2"), [calculated("1"), calculated("1", calls=9)]),
}
CASES = [(rubric_of(system), *cases) for system, cases in SYSTEMS.items()]
CASES += [([{"use": name, "options": options}], right, wrong) for name, (options, right, wrong) in COMPONENTS.items()]


@pytest.mark.parametrize(("components", "right", "wrong"), CASES, ids=[*SYSTEMS, *COMPONENTS])
async def test_acc_is_1_for_a_right_answer_and_0_for_every_wrong_one(
    components: Sequence[Mapping[str, Any]], right: Sample, wrong: list[Sample]
) -> None:
    first, *others = await scores(components, [right, *wrong])
    assert first.acc == first.numbers["acc"] == 1.0 and first.void is None
    assert [one.acc for one in others] == [0.0] * len(wrong) and all(one.void is None for one in others)
    assert len({one.total for one in others}) > 1, "the reward keeps its levels"
    gates = to_gates(["zero_variance"], name="gates")
    failed = Group(uid="g", sessions=tuple(Session(acc=one.acc, reward=one.total) for one in others))
    assert not decide(failed, gates).is_kept
    mixed = Group(uid="g", sessions=tuple(Session(acc=one.acc, reward=one.total) for one in [first, *others]))
    assert decide(mixed, gates).is_kept


async def test_costs_and_broken_forms_lower_the_reward_of_a_right_answer_alone() -> None:
    dear = sample(routed("Paris").turns, ground_truth="Paris", final_answer="x", extra={"cheapness": 0.1})
    spam = sample("<answer>Paris</answer>" * 11, ground_truth="Paris")
    (routing,) = await scores([{"use": "router_r1", "options": {"alpha": 0.6}}], [dear])
    (guessing,) = await scores([{"use": "search_r1"}], [spam])
    assert (routing.total, routing.acc, routing.solved) == (pytest.approx(0.46), 1.0, {"router_r1": 1.0})
    assert (guessing.total, guessing.acc) == (0.25, 1.0)


async def test_outcomes_that_are_graded_by_nature_stay_graded_without_what_the_form_adds() -> None:
    half = searched("Paris Rome")  # two words, one of them right
    for name in ("arpo", "research"):
        (found,) = await scores([{"use": name, "options": {}}], [half])
        assert found.acc == pytest.approx(2 / 3)
    (bleu,) = await scores([{"use": "prs"}], [sample("Paris in France now", ground_truth="Paris in France")])
    assert 0 < bleu.acc < bleu.total < 1


async def test_a_failure_in_a_group_with_successes_is_not_solved() -> None:
    components = [{"use": "pass_at_k", "options": {"k": 2}}]
    found = await scores(components, [sample("a", outcome=outcome) for outcome in (1.0, 0.0, 0.0)])
    assert [one.acc for one in found] == [1.0, 0.0, 0.0] and found[1].total > 0


@component(low=-1.0, high=1.0, kind="outcome", inline=True)
def plain(sample: Sample) -> float:
    return float(sample.extra["value"])


@component(low=0.0, high=3.0, kind="outcome", inline=True, solved=2.0)
def levels(sample: Sample) -> float:
    return float(sample.extra["value"])


@component(low=-1.0, high=1.0, kind="outcome", inline=True)
def says(sample: Sample) -> Graded:
    return Graded(value=float(sample.extra["value"]), solved=sample.extra["solved"])


@pytest.mark.parametrize(
    ("name", "extra", "acc"),
    [
        *(("plain", {"value": value}, acc) for value, acc in [(-1, 0), (0, 0.5), (1, 1)]),
        *(("levels", {"value": value}, acc) for value, acc in [(0, 0), (1.99, 0), (2, 1), (3, 1)]),
        *(("says", {"value": value, "solved": solved}, solved) for value in (-1, 0.3, 1) for solved in (0, 0.4, 1)),
    ],
)
async def test_acc_is_what_the_component_says_or_its_threshold_or_its_place_in_the_range(
    name: str, extra: Mapping[str, Any], acc: float
) -> None:
    (found,) = await scores([{"use": f"{__name__}:{name}"}], [sample("a", extra=extra)])
    assert (found.acc, found.total) == (pytest.approx(acc), extra["value"])


async def test_a_solved_that_is_no_share_is_a_fault_of_the_component() -> None:
    with pytest.raises(ScoringError, match="solved"):
        await scores([{"use": f"{__name__}:says"}], [sample("a", extra={"value": 1, "solved": 1.5})])


async def test_a_held_out_grader_reports_whether_the_task_is_solved() -> None:
    held = {"use": "retool", "name": "holdout", "weight": 0}
    right, wrong = await scores([{"use": "math"}, held], [calculated("2"), calculated("1")])
    assert [one.numbers["solved/holdout"] for one in (right, wrong)] == [right.acc, wrong.acc] == [1.0, 0.0]
    assert wrong.numbers["reward/holdout"] == -1.0


def test_reward_functions_say_it_too() -> None:
    told = functions.router_r1("nq", "<think>t</think>\n<answer>Rome</answer>", "Paris", alpha=0.0)
    assert told == {"score": 0.0, "acc": 0.0}
