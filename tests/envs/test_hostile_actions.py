"""Hostile policies in the environments with a sandbox or a judge: each episode is trained, whatever the policy does."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from verl_agentic.base.types import Message, StopReason, ToolCall
from verl_agentic.episode.collect import scripted
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.episode.run_episode import run_episode
from verl_agentic.verl.rollout.model_codec import load_codec


@pytest.fixture(scope="module")
def actions() -> ModuleType:
    """The actions, which the benchmark `faults` plays, too."""
    name, folder = "_hostile_actions", Path(__file__).parents[2] / "benchmarks"
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def chat(tiny_model: Path) -> tuple[Any, Any]:
    tokenizer, codec = load_codec(str(tiny_model))
    tokenizer.model_max_length = 10**9
    return tokenizer, codec


@pytest.mark.nightly
@pytest.mark.nightly
def test_random_hostile_actions_neither_void_an_episode_nor_raise(actions: ModuleType, chat: tuple[Any, Any]) -> None:
    tokenizer, codec = chat
    played = asyncio.run(actions.play_many(60, codec=codec, tokenizer=tokenizer, seed=0))
    assert [(one.env_id, one.turns, ending) for one, ending in played if ending != "trained"] == []


def play_swe(actions: ModuleType, chat: tuple[Any, Any], turns: list[Message], **deadlines: float) -> Any:
    package = load_env_package("swe")
    assert package.make_rows is not None
    row = package.make_rows(split="train", count=1, seed=0)[0]
    left = list(turns)
    limits = replace(actions.LIMITS, **deadlines)
    setup = scripted(lambda _: left.pop(0) if left else "", codec=chat[1], tokenizer=chat[0], limits=limits)
    make_env = lambda row: package.make_env(row, scaffold="bash", grade_unfinished=True)  # noqa: E731
    return asyncio.run(run_episode(row, make_env=make_env, setup=setup, request_id="r"))


def bash(*commands: str) -> Message:
    return Message("assistant", "", tool_calls=tuple(ToolCall("bash", {"command": one}) for one in commands))


def test_the_commands_of_a_turn_share_its_deadline(actions: ModuleType, chat: tuple[Any, Any]) -> None:
    episode = play_swe(actions, chat, [bash("true", *["sleep 100"] * 15)], turn_timeout_s=3.0)
    answers = [message for message in episode.messages if message.role == "tool"]
    assert not episode.is_void and (len(answers) == 16 or episode.stop_reason is StopReason.POLICY_FAULT)
    assert episode.env_s < 20


@pytest.mark.slow
def test_slow_graded_code_has_outcome_0(actions: ModuleType, chat: tuple[Any, Any]) -> None:
    slow = bash("echo 'import time; time.sleep(1000)' >> quill/__init__.py")
    episode = play_swe(actions, chat, [slow, bash("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")], score_timeout_s=4.0)
    assert not episode.is_void and episode.reward.outcome == 0.0
