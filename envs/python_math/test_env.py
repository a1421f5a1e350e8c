"""python_math validated: the right answer through the tool scores 1, everything else scores 0."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from verl_agentic import (
    Action,
    ConfigError,
    EnvRow,
    Episode,
    EpisodeLimits,
    Message,
    StopReason,
    ToolCall,
    Transcript,
    read_rows,
    run_episode,
    scripted,
)
from verl_agentic.cpu.testing import tiny_codecs

from .demos import MIXTURE, Kind, boxed, demonstrator, gold, tool_call
from .env import make_env
from .tasks import Task, make_rows, make_tasks, operands

EXAMPLES = read_rows(Path(__file__).with_name("example.jsonl"))
TASK = Task(task_id="t", left=837, right=294)  # 837 * 294 = 246078
LIMITS = EpisodeLimits(max_response_tokens=400, max_context_tokens=600, max_turns=3)


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Any:
    tokenizer, codecs = tiny_codecs(tmp_path_factory.mktemp("model"))
    return tokenizer, codecs["chat"]


async def play(chat: Any, row: EnvRow, next_text: Any) -> Episode:
    tokenizer, codec = chat
    return await run_episode(
        row,
        make_env=make_env,
        setup=scripted(next_text, codec=codec, tokenizer=tokenizer, limits=LIMITS),
        request_id="r",
    )


def turns(*texts: str) -> Any:
    """Returns a policy that plays texts one after the other, whatever it is answered."""
    return lambda messages: texts[sum(message.role == "assistant" for message in messages)]


def expression(row: EnvRow) -> str:
    return row.prompt[-1].content.removeprefix("What is ").rstrip("?")


@pytest.mark.parametrize(
    "row", [*EXAMPLES, *make_rows(split="test", count=2, seed=3)], ids=lambda r: r.extra["task_id"]
)
async def test_the_solution_scores_1_through_the_tool(chat: Any, row: EnvRow) -> None:
    solution = gold(row)
    episode = await play(chat, row, lambda messages: chat[1].render_action(solution(messages)))
    assert episode.reward.outcome == 1.0
    assert episode.numbers()["tool_calls"] == 1.0 and episode.numbers()["tool_errors"] == 0.0


async def test_a_demonstration_reasons_before_it_answers(chat: Any) -> None:
    assert TASK.worked_answer == (
        "837*294 is 837*200 + 837*90 + 837*4. That is 167400 + 75330 + 3348 = 246078.\n\\boxed{246078}"
    )
    assert Task(task_id="t", left=837, right=904).worked_answer.startswith("837*904 is 837*900 + 837*4. That is ")
    for row in make_rows(split="train", count=3, seed=3, tool="none", demonstrations=True):
        assert (await play(chat, row, turns(row.extra["demonstration"]))).reward.outcome == 1.0
    assert all("demonstration" not in row.extra for row in make_rows(split="train", count=3, seed=3))


async def test_rows_without_a_tool_are_answered_at_once_and_show_none_to_the_policy(chat: Any) -> None:
    (row,) = make_rows(split="test", count=1, seed=3, tool="none")
    assert (len(make_env(row).tools), len(make_env(replace(row, extra={})).tools)) == (0, 1)
    solution = gold(row)
    episode = await play(chat, row, lambda messages: chat[1].render_action(solution(messages)))
    assert (episode.reward.outcome, len(episode.actions)) == (1.0, 1)
    called = await play(chat, row, turns(tool_call("print(837*294)"), boxed("1")))
    assert (called.reward.outcome, called.numbers()["tool_errors"]) == (0.0, 1.0)


async def test_the_tool_can_be_left_out_for_all_rows_and_guidance_does_not_speak_of_it() -> None:
    env = make_env(EXAMPLES[0], tool="none")
    assert len(env.tools) == 0
    transcript = Transcript(messages=(), actions=(), stop_reason=StopReason.ANSWERED)
    assert await env.guidance(transcript) == r"An earlier attempt gave no complete answer in a \boxed{}."
    assert "tool" in str(await make_env(EXAMPLES[0]).guidance(transcript))


def test_an_unknown_tool_is_refused() -> None:
    unknown: Any = "abacus"
    for make in (
        lambda: make_env(EXAMPLES[0], tool=unknown),
        lambda: make_rows(split="test", count=1, seed=0, tool=unknown),
    ):
        with pytest.raises(ConfigError, match="tool"):
            make()


async def test_a_question_of_another_kind_is_solved_by_its_ground_truth(chat: Any) -> None:
    row = EnvRow(prompt=(Message("user", "What is the derivative of $x^2$?"),), ground_truth="2x")
    solution = gold(row)
    episode = await play(chat, row, lambda messages: chat[1].render_action(solution(messages)))
    assert (episode.reward.outcome, episode.numbers()["tool_calls"]) == (1.0, 0.0)


@pytest.mark.parametrize(
    "texts",
    [
        [boxed("246079")],
        [tool_call("print(837*294)"), boxed("246079")],
        [tool_call("print(837*294)"), "The tool knows."],
        [tool_call(r"print('\\boxed{246078}')"), "See above."],
        [tool_call("print(837*294)"), tool_call("print(837*294)"), tool_call("print(837*294)")],
        [tool_call("# " + boxed("246078")), "done"],
        ["246078"],
        [""],
    ],
    ids=["guess", "misread", "tool-only", "boxed-by-tool", "never-answers", "boxed-in-code", "unboxed", "empty"],
)
async def test_a_wrong_answer_and_one_that_only_the_tool_gave_score_0(chat: Any, texts: list[str]) -> None:
    episode = await play(chat, EXAMPLES[0], turns(*texts))
    assert not episode.is_void and episode.reward.outcome == 0.0


async def test_the_first_example_is_the_task_that_these_tests_speak_of(chat: Any) -> None:
    assert (expression(EXAMPLES[0]), EXAMPLES[0].ground_truth) == (TASK.expression, TASK.answer)
    assert (await play(chat, EXAMPLES[0], turns(boxed("246078")))).reward.outcome == 1.0


@pytest.mark.parametrize(
    ("kind", "outcome", "calls", "errors"),
    [("tool", 1.0, 1, 0), ("guess", 0.0, 0, 0), ("malformed", 0.0, 1, 1), ("wrong_operand", 0.0, 1, 0)],
)
async def test_each_kind_of_demonstration_does_what_it_is_named_for(
    chat: Any, kind: Kind, outcome: float, calls: int, errors: int
) -> None:
    for seed in range(4):
        demo = demonstrator(EXAMPLES[0], rng=random.Random(seed), kind=kind)
        episode = await play(chat, EXAMPLES[0], demo)
        numbers = episode.numbers()
        assert (numbers["acc"], numbers["tool_calls"], numbers["tool_errors"]) == (outcome, calls, errors)


def test_the_mixture_names_every_kind_and_sums_to_1() -> None:
    assert set(MIXTURE) == set(get_args(Kind)) and sum(MIXTURE.values()) == pytest.approx(1.0)
    rows = make_rows(split="train", count=400, seed=0)
    drawn = Counter(
        "tool_call" in demonstrator(row, rng=random.Random(i))([row.prompt[0]]) for i, row in enumerate(rows)
    )
    # A guess is the only demonstration without a call; standard deviation of its share: at most 0.025.
    assert drawn[False] / 400 == pytest.approx(MIXTURE["guess"], abs=0.1)


def test_train_and_test_share_no_operand_and_tasks_are_all_different_and_repeatable() -> None:
    assert not set(operands("train")) & set(operands("test"))
    train = make_tasks(split="train", count=500, seed=1)
    assert train == make_tasks(split="train", count=500, seed=1) != make_tasks(split="train", count=500, seed=2)
    assert len({(task.left, task.right) for task in train}) == 500
    assert {n for task in train for n in (task.left, task.right)} <= set(operands("train"))
    assert all(eval(task.expression) == int(task.answer) for task in train)


def test_more_tasks_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="count"):
        make_tasks(split="test", count=10**6, seed=0)


def test_rows_are_the_tasks_and_the_same_ones_for_the_same_arguments() -> None:
    rows = make_rows(split="train", count=3, seed=7)
    assert rows == make_rows(split="train", count=3, seed=7) != make_rows(split="train", count=3, seed=8)
    for row, task in zip(rows, make_tasks(split="train", count=3, seed=7), strict=True):
        assert (row.prompt, row.ground_truth) == ((Message("user", task.question),), task.answer)
        assert (row.data_source, row.extra) == ("python_math", {"task_id": task.task_id})


def call(code: object) -> Action:
    return Action(turn=0, text="", content="", tool_calls=(ToolCall("python", {"code": code}),))


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("print(837*294)", "246078"),
        ("837*294", "[no output]"),
        ("print(1)\n1/0", "ZeroDivisionError: division by zero"),
        ("while True: pass", "Error: the code was stopped after"),
        ("print('x' * 9000)", "[output truncated]"),
        (7, 'Error: the arguments must be {"code": "<string>"}'),
    ],
)
async def test_the_tool_runs_the_code_and_answers_with_what_it_printed(code: object, answer: str) -> None:
    env = make_env(EXAMPLES[0], code_timeout_s=1.5)
    (message,) = (await env.step(call(code))).messages
    assert message.role == "tool" and answer in message.content and len(message.content) < 2_100


async def test_a_backend_can_be_named_and_one_that_is_too_weak_is_refused() -> None:
    env = make_env(EXAMPLES[0], sandbox="local")
    (message,) = (await env.step(call("print(837*294)"))).messages
    assert message.content == "246078"
    with pytest.raises(ConfigError, match="process_limits"):
        make_env(EXAMPLES[0], sandbox="local", at_least="namespaces")


async def test_by_default_calls_share_nothing_and_a_stateful_interpreter_keeps_its_variables() -> None:
    fresh, stateful = make_env(EXAMPLES[0]), make_env(EXAMPLES[0], stateful=True)
    answers = []
    try:
        for env in (fresh, stateful):
            await env.step(call("x = 837"))
            answers.append((await env.step(call("print(x * 294)"))).messages[0].content)
    finally:
        await fresh.close()
        await stateful.close()
    assert answers[0].endswith("NameError: name 'x' is not defined") and answers[1] == "246078"
    assert "keeps its variables" in stateful.tools[0].schema["function"]["description"]
    assert fresh.tools[0].schema["function"]["description"] == "Runs Python code and returns what it prints."
