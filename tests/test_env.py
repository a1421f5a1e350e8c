"""Environments: tool calls are answered whatever the policy wrote, and environments are found by their id."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import ConfigError, DataError, EnvError, ScoringError
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Action, Message, Reward, StopReason, ToolCall, ToolResult
from verl_agentic.episode.env_package import absolute_id, load_env, load_env_package

ROW = EnvRow(prompt=(Message("user", "q"),), ground_truth="1")


class Echo:
    name = "echo"
    schema: Mapping[str, Any] = {}

    def __init__(self) -> None:
        self.running = self.most_running = 0

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        await asyncio.sleep(arguments.get("delay", 0.01))
        self.running -= 1
        if "raise" in arguments:
            raise OSError("broken pipe")
        return ToolResult(str(arguments.get("text")))


def act(*calls: ToolCall, content: str = "") -> Action:
    return Action(turn=0, text="", content=content, tool_calls=calls)


def env(**options: Any) -> ToolEnv:
    return ToolEnv(ROW, [Echo()], **options)


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="'echo'"):
        ToolEnv(ROW, [Echo(), Echo()])


async def test_a_turn_without_a_call_is_the_answer() -> None:
    assert (await env().step(act(content="1"))).stop is StopReason.ANSWERED


async def test_several_calls_are_answered_in_order_and_run_side_by_side_up_to_the_limit() -> None:
    tool = Echo()
    calls = [ToolCall("echo", {"text": i, "delay": 0.05 / (i + 1)}, f"c{i}") for i in range(5)]
    observation = await ToolEnv(ROW, [tool], max_parallel_calls=2).step(act(*calls))
    assert [(m.role, m.content, m.name, m.call_id) for m in observation.messages] == [
        ("tool", str(i), "echo", f"c{i}") for i in range(5)
    ]
    assert tool.most_running == 2
    assert observation.info == {"tool_calls": 5.0, "tool_errors": 0.0} and observation.stop is None


@pytest.mark.parametrize(
    ("call", "says", "kind"),
    [
        (ToolCall("nope", {}), "unknown tool 'nope'; known tools: ['echo']", "unknown_tool"),
        (ToolCall("", {}, "", "malformed tool call", "malformed_json"), "malformed tool call", "malformed_json"),
        (ToolCall("echo", {"delay": 60}), "no result within 0.1 s", "tool_timeout"),
    ],
    ids=["unknown", "malformed", "too slow"],
)
async def test_a_call_that_cannot_be_run_is_answered_with_the_reason_and_counted(
    call: ToolCall, says: str, kind: str
) -> None:
    observation = await env(tool_timeout_s=0.1).step(act(call, ToolCall("echo", {"text": "fine"})))
    assert says in observation.messages[0].content and observation.messages[1].content == "fine"
    assert observation.info == {"tool_calls": 2.0, "tool_errors": 1.0, f"call_error/{kind}": 1}
    assert observation.stop is None


async def test_a_tool_may_have_a_deadline_of_its_own() -> None:
    class Slow(Echo):
        name = "slow"
        timeout_s = 5.0

    observation = await ToolEnv(ROW, [Echo(), Slow()], tool_timeout_s=0.05).step(
        act(ToolCall("echo", {"delay": 0.2}), ToolCall("slow", {"delay": 0.2, "text": "done"}))
    )
    assert [m.content for m in observation.messages] == ["Error: no result within 0.05 s", "done"]


async def test_a_tool_that_raises_is_a_failed_environment() -> None:
    with pytest.raises(EnvError, match="'echo'"):
        await env().step(act(ToolCall("echo", {"raise": True})))


async def test_the_place_of_a_tools_exception_is_for_authors_and_not_for_the_policy() -> None:
    class Buggy(Echo):
        async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
            raise KeyError("count")

    (message,) = (await ToolEnv(ROW, [Buggy()]).step(act(ToolCall("echo", {})))).messages
    assert re.fullmatch(r".*test_env.py:\d+ in call", message.error_place), message.error_place
    assert "KeyError" in message.content and "test_env" not in str(message.to_dict())


async def test_when_one_call_fails_the_others_are_ended_before_that_is_told() -> None:
    ended: list[str] = []

    class Slow(Echo):
        async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
            try:
                return await super().call(arguments)
            except asyncio.CancelledError:
                await asyncio.sleep(0.01)
                ended.append(arguments["text"])
                raise

    calls = [
        ToolCall("echo", {"text": "a", "delay": 60}),
        ToolCall("echo", {"text": "b", "raise": True}),
        ToolCall("echo", {"text": "c", "delay": 60}),
    ]
    with pytest.raises(EnvError, match="broken pipe"):
        await ToolEnv(ROW, [Slow()]).step(act(*calls))
    assert ended == ["a", "c"] and asyncio.all_tasks() == {asyncio.current_task()}


async def test_when_a_turn_is_cancelled_all_its_calls_are_ended() -> None:
    tool = Echo()
    step = asyncio.create_task(
        ToolEnv(ROW, [tool], max_parallel_calls=2).step(act(*[ToolCall("echo", {"delay": 60})] * 5))
    )
    await asyncio.sleep(0.05)
    assert tool.running == 2
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_call_that_waits_for_a_slot_is_not_late() -> None:
    calls = [ToolCall("echo", {"text": i, "delay": 0.15}) for i in range(3)]
    observation = await env(tool_timeout_s=0.25, max_parallel_calls=1).step(act(*calls))
    assert [m.content for m in observation.messages] == ["0", "1", "2"]


async def test_a_tool_that_swallows_its_cancellation_is_answered_for() -> None:
    release = asyncio.Event()

    class Stubborn(Echo):
        async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue
            return ToolResult("at last")

    observation = await ToolEnv(ROW, [Stubborn()], tool_timeout_s=0.05).step(act(ToolCall("echo", {})))
    assert observation.messages[0].content == "Error: no result within 0.05 s"
    release.set()
    await asyncio.sleep(0.01)


def test_the_final_answer_is_what_the_policy_wrote_last() -> None:
    actions = (act(content="first"), act(content="last"))
    assert Transcript(messages=(), actions=actions, stop_reason=StopReason.ANSWERED).final_answer == "last"
    assert Transcript(messages=(), actions=(), stop_reason=StopReason.MAX_TOKENS).final_answer == ""


def test_environments_are_loaded_by_name_by_folder_and_by_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("by_folder", "by_module"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "helper.py").write_text(f"NAME = {name!r}\n")
        (tmp_path / name / "__init__.py").write_text(
            "from .helper import NAME\ndef make_env(row, **config):\n    return NAME\n"
        )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load_env(str(tmp_path / "by_folder"))(ROW) == "by_folder"
    assert load_env("by_module")(ROW) == "by_module"
    assert load_env("python_math")(ROW).tools[0].name == "python"
    assert load_env("python_math") is load_env("python_math")


def test_an_environment_may_be_a_function_of_a_module_or_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small_env.py").write_text(
        "def play(row, **config):\n    return 'played'\ndef gold(row):\n    return 'solved'\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for env_id in ("small_env:play", "small_env.py:play", "./small_env.py:play"):
        package = load_env_package(env_id)
        assert package.make_env(ROW) == "played" and package.gold is not None and package.folder == tmp_path
    with pytest.raises(ConfigError, match="small_env"):
        load_env("small_env:make_env")


@pytest.mark.parametrize("env_id", ["python_math", "textarena/Nim-v0", "my_package.my_env", "my_package.my_env:play"])
def test_an_id_without_a_path_has_no_absolute_form(env_id: str) -> None:
    assert absolute_id(env_id) == env_id


def test_arguments_that_make_env_does_not_take_are_refused_at_once() -> None:
    assert load_env("python_math", code_timeout_s=1.5)(ROW).tools[0].name == "python"
    with pytest.raises(ConfigError, match="code_timeout"):
        load_env("python_math", code_timeout=1.5)


@pytest.mark.parametrize(
    ("env_id", "told"),
    [
        ("no_such_env", "python_math"),
        ("./no/such/folder", "'./no/such/folder'"),
        ("./folder", "__init__"),
        ("folder", "__init__"),
        ("json", "make_env"),
    ],
)
def test_an_unknown_environment_says_what_is_missing(
    env_id: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=told):
        load_env(env_id)


def test_a_folder_that_is_named_like_a_module_gets_the_hint_to_name_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "env_of_mine").mkdir()
    (tmp_path / "env_of_mine" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])  # as the installed command
    with pytest.raises(ConfigError, match="env_of_mine"):
        load_env("env_of_mine")


def test_an_environment_that_does_not_import_names_the_cause(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("import no_such_module_anywhere\n")
    with pytest.raises(ConfigError, match="no_such_module_anywhere"):
        load_env(str(tmp_path))


def test_multimodal_content_is_refused_with_a_way_out() -> None:
    with pytest.raises(DataError, match="tool_agent"):
        Message.from_dict({"role": "user", "content": [{"type": "image"}]})


def test_a_reward_that_is_not_finite_is_an_error() -> None:
    with pytest.raises(ScoringError, match="'format'"):
        Reward(1.0, {"format": float("nan")})
    assert Reward(1.0, {"format": -0.25}).total == 0.75
