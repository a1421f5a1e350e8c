"""Whatever a policy answers or calls in a bundled environment, it is scored: no turn of it voids the episode."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.base.env import EnvRow
from verl_agentic.base.paths import envs_dir
from verl_agentic.base.types import Message, ToolCall
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.collect import scripted
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.episode.run_episode import run_episode
from verl_agentic.evaluate.env_validation.adversaries import example_call
from verl_agentic.verl.rollout.model_codec import load_codec

OWN = sorted(path.parent.name for path in envs_dir().glob("*/__init__.py"))
LIMITS = EpisodeLimits(max_response_tokens=20_000, max_context_tokens=30_000, max_turns=3, max_retries=0)
VALUES = (
    *(
        "\x00",
        "x" * 3_000,
        "9" * 5_000,
        "\u2028",
        "é" * 99,
        "\ufffd",
        r"\boxed{" * 300,
        "(" * 500,
        "[" * 900,
        "10**10**10",
    ),
    *("import os; os.kill(os.getpid(), 9)", "raise SystemExit(3)", "print('\\ud800')", "def solve(:", "```python\n```"),
    *(None, True, -1, 0, 2**62, 1e308, [], {}, ["a", [1]], {"a": {"b": None}}),
)
ANSWERS = (
    *(
        r"\boxed{9" + "9" * 5_000 + "}",
        r"\boxed{" + "(" * 400 + "}",
        r"\boxed{\frac{1}{0}}",
        r"\boxed{nan}",
        r"\boxed{1e999}",
    ),
    *(
        "```python\n" + "(" * 900 + "\n```",
        "```python\nwhile 1: pass\n```",
        "\x00",
        "\u2028",
        "...",
        "{" * 2_000,
        "é\ufffd",
    ),
)


@pytest.fixture(scope="module")
def chat(tiny_model: Path) -> tuple[Any, Any]:
    tokenizer, codec = load_codec(str(tiny_model))
    tokenizer.model_max_length = 10**9
    return tokenizer, codec


@functools.cache
def rows_of(env_id: str) -> list[EnvRow]:
    make_rows = load_env_package(env_id).make_rows
    assert make_rows is not None
    return make_rows(split="train", count=8, seed=0)


@given(
    env_id=st.sampled_from(OWN),
    values=st.lists(st.sampled_from(VALUES), min_size=1, max_size=4),
    answer=st.sampled_from(ANSWERS),
    index=st.integers(0, 7),
)
def test_every_turn_is_answered_and_every_answer_is_scored(
    chat: Any, env_id: str, values: list[Any], answer: str, index: int
) -> None:
    tokenizer, codec = chat
    package, row = load_env_package(env_id), rows_of(env_id)[index]
    tools = [tool.schema for tool in package.make_env(row).tools]
    left = list(values)

    def script(messages: Any) -> Message | str:
        if not left or not tools:
            return answer
        value, schema = left.pop(), tools[len(left) % len(tools)]
        call = example_call(schema)
        spoilt = dict(call.arguments) | dict.fromkeys(list(call.arguments)[:1], value) or {"x": value}
        return Message("assistant", "", tool_calls=(ToolCall(call.name, spoilt),))

    chosen = scripted(script, codec=codec, tokenizer=tokenizer, limits=LIMITS)
    episode = asyncio.run(run_episode(row, make_env=package.make_env, setup=chosen, request_id="r"))
    assert not episode.is_void, episode.error
    assert 0.0 <= episode.reward.outcome <= 1.0
