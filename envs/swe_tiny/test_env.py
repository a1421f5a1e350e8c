"""The functions have the bugs that their rows say, and only what computes the right values scores."""

from __future__ import annotations

import asyncio
import json
import random
from typing import get_args

import pytest

from verl_agentic import Action, EnvRow, Message, StopReason, ToolCall, Transcript

from .demos import MIXTURE, Kind, demonstrator, gold
from .env import make_env
from .functions import HELD_OUT, INPUTS, TEMPLATES, places, plain, results, written
from .rows import make_rows, source_of

ROWS = make_rows(split="train", count=60, seed=0)


def outcome(row: EnvRow, old: str, new: str, *, stop: StopReason = StopReason.ANSWERED) -> float:
    """Returns the outcome of an episode with one edit."""

    async def play() -> float:
        env = make_env(row)
        await env.start()
        call = Action(0, "", "", tool_calls=(ToolCall("edit", {"old": old, "new": new}, "1"),))
        await env.step(call)
        answer = Action(1, "done", "done")
        await env.step(answer)
        return (await env.score(Transcript(messages=(), actions=(call, answer), stop_reason=stop))).outcome

    return asyncio.run(play())


def test_the_right_edit_scores_and_no_edit_does_not() -> None:
    for row in ROWS:
        old, new = row.extra["old_line"], row.extra["new_line"]
        assert outcome(row, old, new) == 1.0
        assert outcome(row, old, old) == 0.0
        assert outcome(row, "no such text", new) == 0.0


def test_an_episode_that_was_cut_off_scores_0() -> None:
    row = ROWS[0]
    assert outcome(row, row.extra["old_line"], row.extra["new_line"], stop=StopReason.MAX_TURNS) == 0.0


@pytest.mark.parametrize(
    "line",
    ["import os", "return open", "return ().__class__", "while 1 < 2 :\n        r = 1", "return [ 1 ]", "r = r = r",
     "return 9 * 9 * 9 * 9 * 9 * 9 * 9 * 9 * 9 * 9 * 9", "return f ( a , b )", "return 1.5", "yield 1", "return True"],
)  # fmt: skip
def test_other_python_is_not_run_and_has_no_results(line: str) -> None:
    assert results(f"def f ( a , b ) :\n    {line}\n    return [ a ]") is None


def test_a_function_is_computed_as_python_computes_it() -> None:
    for template in (*TEMPLATES.values(), *HELD_OUT.values()):
        for constant in (1, 5):
            source = source_of("f", ("a", "b"), plain(written(template, variables=("a", "b"), constant=constant)))
            scope: dict[str, object] = {}
            exec(source, scope)
            function = scope["f"]
            assert callable(function)
            assert results(source) == [function(*pair) for pair in INPUTS]


def test_train_and_test_share_no_pair_of_name_and_constant() -> None:
    tests = make_rows(split="test", count=60, seed=0)
    assert {row.extra["split"] for row in ROWS} == {"train"} and {row.extra["split"] for row in tests} == {"test"}
    held_out = make_rows(split="test", count=20, seed=0, templates="held_out")
    assert {row.extra["task_id"].split("-")[0] for row in held_out} == set(HELD_OUT)
    assert not {row.extra["task_id"].split("-")[0] for row in (*ROWS, *tests)} & set(HELD_OUT)


def test_the_shown_call_is_wrong_in_the_function_and_right_after_the_fix() -> None:
    for row in ROWS:
        call, _, rest = row.prompt[0].content.split("\n")[-1].partition(" gives ")
        got, _, want = rest.partition(" , should give ")
        pair = tuple(int(word) for word in call.split() if word.isdigit())
        index = INPUTS.index(pair)  # type: ignore[arg-type]
        assert results(row.extra["source"])[index] == int(got)  # type: ignore[index]
        assert json.loads(row.ground_truth)[index] == int(want) != int(got)


def test_each_kind_of_demonstration_does_what_its_name_says() -> None:
    assert set(MIXTURE) == set(get_args(Kind)) and sum(MIXTURE.values()) == pytest.approx(1.0)
    for kind in get_args(Kind):
        outcomes = []
        for index, row in enumerate(ROWS[:20]):
            call = demonstrator(row, rng=random.Random(index), kind=kind)(row.prompt).tool_calls[0]
            assert (call.arguments["old"] in row.extra["source"]) == (kind != "not_found")
            outcomes.append(outcome(row, call.arguments["old"], call.arguments["new"]))
        assert outcomes == [1.0] * 20 if kind == "right" else sum(outcomes) <= 4  # another edit may be right by chance


def test_the_solution_submits_after_the_edit() -> None:
    policy = gold(ROWS[0])
    assert policy(ROWS[0].prompt).tool_calls
    assert policy((*ROWS[0].prompt, Message("tool", "ok"))) == Message("assistant", "done")


def test_every_place_of_a_template_may_have_a_bug() -> None:
    assert all(places(template) for template in (*TEMPLATES.values(), *HELD_OUT.values()))
