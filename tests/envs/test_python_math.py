"""The environment of the quickstart, with its real sandbox and its real verifier."""

from __future__ import annotations

import pytest

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.types import Action, Message, StopReason, ToolCall
from verl_agentic.episode.env_package import load_env

ROW = EnvRow(prompt=(Message("user", "What is 37*84?"),), ground_truth="3108")


def call(code: object) -> Action:
    return Action(turn=0, text="", content="", tool_calls=(ToolCall("python", {"code": code}),))


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("print(37*84)", "3108"),
        ("37*84", "[no output]"),
        ("print(1)\n1/0", "ZeroDivisionError: division by zero"),
        ("while True: pass", "Error: the code was stopped after"),
        ("print('x' * 9000)", "[output truncated]"),
        (7, 'Error: the arguments must be {"code": "<string>"}'),
    ],
)
async def test_the_tool_runs_the_code_and_answers_with_what_it_printed(code: object, answer: str) -> None:
    env = load_env("python_math")(ROW, code_timeout_s=1.5)
    (message,) = (await env.step(call(code))).messages
    assert message.role == "tool" and answer in message.content and len(message.content) < 2_100


async def test_a_backend_can_be_named_and_one_that_is_too_weak_is_refused() -> None:
    env = load_env("python_math")(ROW, sandbox="local")
    (message,) = (await env.step(call("print(37*84)"))).messages
    assert message.content == "3108"
    with pytest.raises(ConfigError, match="local isolates by process_limits"):
        load_env("python_math")(ROW, sandbox="local", at_least="namespaces")


@pytest.mark.parametrize(
    ("said", "outcome"), [(r"\boxed{3108}", 1.0), (r"\boxed{3109}", 0.0), ("3108", 0.0), (r"\boxed{37*84}", 0.0)]
)
async def test_only_a_boxed_right_answer_of_the_policy_succeeds(said: str, outcome: float) -> None:
    env = load_env("python_math")(ROW)
    actions = (call("print(37*84)"), Action(turn=1, text=said, content=said))
    transcript = Transcript(
        messages=(Message("tool", r"\boxed{3108}"),), actions=actions, stop_reason=StopReason.ANSWERED
    )
    assert (await env.score(transcript)).outcome == outcome


async def test_by_default_calls_share_nothing_and_a_stateful_interpreter_keeps_its_variables() -> None:
    fresh, stateful = load_env("python_math")(ROW), load_env("python_math")(ROW, stateful=True)
    answers = []
    try:
        for env in (fresh, stateful):
            await env.step(call("x = 37"))
            answers.append((await env.step(call("print(x * 84)"))).messages[0].content)
    finally:
        await fresh.close()
        await stateful.close()
    assert answers[0].endswith("NameError: name 'x' is not defined") and answers[1] == "3108"
    assert "keeps its variables" in stateful.tools[0].schema["function"]["description"]
    assert fresh.tools[0].schema["function"]["description"] == "Runs Python code and returns what it prints."
