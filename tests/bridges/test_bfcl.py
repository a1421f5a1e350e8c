"""BFCL multi-turn on the data and the checker of the installed `bfcl-eval`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from verl_agentic.base.env import Env, EnvRow, Transcript
from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.base.tools.schema_check import argument_schema
from verl_agentic.base.types import Action, Message, Reward, ToolCall
from verl_agentic.bridges.bfcl import data
from verl_agentic.bridges.bfcl.data import functions
from verl_agentic.episode.env_package import load_env_package

pytest.importorskip("bfcl_eval")
pytest.importorskip("mpmath")
PACKAGE = load_env_package("bfcl")
assert PACKAGE.make_rows is not None and PACKAGE.gold is not None and PACKAGE.card is not None
CATEGORIES = [name for name in PACKAGE.card.tasks if name.startswith("multi_turn")]


def row_of(task_id: str) -> EnvRow:
    task = data.task_of(task_id)
    return EnvRow(prompt=(), ground_truth=json.dumps(task["solution"]), extra={"task_id": task_id})


def parameters_of(env: Env) -> dict[str, Any]:
    return {tool.name: tool.schema["function"]["parameters"] for tool in env.tools}


async def play(row: EnvRow, script: Sequence[Message] | None = None) -> tuple[Reward, list[Message], list[set[str]]]:
    """Returns the reward, the conversation, and the tools in every turn; `script` or else the solution plays."""
    assert PACKAGE.gold is not None
    env, solution = PACKAGE.make_env(row), PACKAGE.gold(row)
    messages, offered, actions = list(await env.start()), [], []
    while True:
        number = len(offered)
        said = solution(messages) if script is None else script[min(number, len(script) - 1)]
        messages.append(said)
        offered.append(set(parameters_of(env)))
        actions.append(Action(turn=number, text=said.content, content=said.content, tool_calls=said.tool_calls))
        observation = await env.step(actions[-1])
        messages += observation.messages
        if observation.stop is not None:
            break
    transcript = Transcript(messages=tuple(messages), actions=tuple(actions), stop_reason=observation.stop)
    reward = await env.score(transcript)
    await env.close()
    return reward, messages, offered


@pytest.mark.sample(1)
@pytest.mark.parametrize("category", CATEGORIES)
async def test_the_solution_of_every_task_fits_its_schemas_and_scores_1(category: str) -> None:
    tasks = data.tasks(category)
    assert len(tasks) == (198 if category == "multi_turn_miss_func" else 199)
    for task in tasks.values():
        env = PACKAGE.make_env(row_of(task["id"]))
        await env.start()
        known = {name: doc["parameters"] for api in task["involved_classes"] for name, doc in functions(api).items()}
        for name, arguments in (data.read_call(call, task) for turn in task["solution"] for call in turn):
            assert argument_schema(known[name]).mismatches(arguments) == [], (task["id"], name)
        reward, _, _ = await play(row_of(task["id"]))
        assert reward.outcome == 1.0, (task["id"], reward)


async def test_withheld_functions_come_with_a_message_in_their_turn() -> None:
    _, messages, offered = await play(row_of("multi_turn_miss_func_0"))
    assert data.task_of("multi_turn_miss_func_0")["missed_function"] == {"3": ["sort"]}
    users = [m.content for m in messages if m.role == "user"]
    assert users[-2].startswith("I have updated some more functions")
    has_sort = ["sort" in tools for tools in offered]
    assert has_sort == sorted(has_sort) and has_sort[0] is False and has_sort[-1] is True


def calls(*texts: str) -> Message:
    task = data.task_of("multi_turn_base_0")
    return Message("assistant", "", tool_calls=tuple(ToolCall(*data.read_call(text, task)) for text in texts))


DONE = Message("assistant", "Done.")
MOVE = ("cd(folder='document')", "mkdir(dir_name='temp')", "mv(source='final_report.pdf', destination='temp')")
REST = [
    calls("cd(folder='temp')", "grep(file_name='final_report.pdf',pattern='budget analysis')"), DONE,
    calls("sort('final_report.pdf')"), DONE,
    calls("cd(folder='..')", "mv(source='previous_report.pdf',destination='temp')", "cd(folder='temp')"),
    calls("diff(file_name1='final_report.pdf',file_name2='previous_report.pdf')"), DONE,
]  # fmt: skip


@pytest.mark.parametrize(
    ("script", "outcome", "passed"),
    [
        ([calls(*MOVE), DONE, *REST], 1.0, 1.0),
        ([calls("ls()", *MOVE), DONE, *REST], 1.0, 1.0),  # more calls than the solution has
        ([calls(*MOVE, "touch(file_name='more')"), DONE, *REST], 0.0, 0.0),  # another state
        ([calls(*MOVE), DONE, *REST[:4], REST[4], DONE], 0.0, 0.75),  # the result of `diff` is missing
        ([calls(*MOVE), DONE, DONE, *REST[2:]], 0.0, 0.25),  # no call in the second turn
        ([DONE], 0.0, 0.0),
    ],
)
async def test_state_and_results_are_checked_after_each_turn(
    script: Sequence[Message], outcome: float, passed: float
) -> None:
    reward, _, _ = await play(row_of("multi_turn_base_0"), script)
    assert (reward.outcome, reward.info["turns_passed"]) == (outcome, passed)


async def test_a_turn_of_the_user_has_at_most_20_steps() -> None:
    _, _, offered = await play(row_of("multi_turn_base_0"), [calls("ls()")])
    assert len(offered) == 21


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("power", {"base": 10, "exponent": 10**9}, "exponent must be at most 1000"),
        ("logarithm", {"value": 2.0, "base": 10.0, "precision": 10**9}, "precision must be at most 1000"),
        ("power", {"base": 2, "exponent": 10}, '{"result": 1024}'),
        ("power", {"x=__import__('os').getpid(), base": 2}, "unexpected keyword argument"),
    ],
)
async def test_arguments_can_neither_block_the_process_nor_be_code(
    name: str, arguments: Mapping[str, Any], told: str
) -> None:
    task = next(t for t in data.tasks("multi_turn_base").values() if "MathAPI" in t["involved_classes"])
    assert told in data.Apis(task).call(name, arguments)


@pytest.mark.slow
@pytest.mark.parametrize("category", ["parallel_multiple", "live_parallel"])
async def test_single_turn_rows_are_played_as_function_calling(category: str) -> None:
    package = load_env_package(f"bfcl/{category}")
    assert package.make_rows is not None
    rows = package.make_rows(split="test", count=4, seed=0)
    assert all(row.extra["task_id"].startswith(category) for row in rows)
    assert [(await play(row))[0].outcome for row in rows] == [1.0] * 4
    assert (await play(rows[0], [Message("assistant", "")]))[0].outcome == 0.0


def test_train_and_test_share_no_scenario_and_all_tasks_can_be_test_rows() -> None:
    scenarios: dict[str, set[str]] = {"train": set(), "test": set()}
    for category in CATEGORIES:
        make_rows = load_env_package(f"bfcl/{category}").make_rows
        assert make_rows is not None
        for split, count in (("train", 150), ("test", 40)):
            rows = make_rows(split=split, count=count, seed=0)
            assert {row.data_source for row in rows} == {f"bfcl/{category}"}
            scenarios[split] |= {row.extra["task_id"].rpartition("_")[2] for row in rows}
    assert not scenarios["train"] & scenarios["test"]
    make_rows = load_env_package("bfcl/multi_turn_miss_param").make_rows
    assert make_rows is not None and len(make_rows(split="test", count=199, seed=0, train_share=0)) == 199
    with pytest.raises(ConfigError, match="200"):
        make_rows(split="test", count=200, seed=0, train_share=0)


async def test_a_task_that_is_not_installed_or_faulty_is_refused() -> None:
    for task_id in ("multi_turn_base_173", "multi_turn_base_999"):
        with pytest.raises(DataError, match="has no task"):
            await PACKAGE.make_env(EnvRow(prompt=(), ground_truth="[]", extra={"task_id": task_id})).start()
