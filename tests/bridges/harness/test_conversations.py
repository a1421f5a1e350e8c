"""Requests are joined to conversations, the agent's own one is chosen, and broken histories are refused."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from typing import Any

import pytest
from client_shapes import SHAPES, TASK, Answer

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.types import Message, StopReason, ToolCall
from verl_agentic.bridges.harness import make_env

CALL = Message("assistant", "I multiply.", tool_calls=(ToolCall("multiply", {"left": 6, "right": 7}),))


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def system(text: str) -> dict[str, str]:
    return {"role": "system", "content": text}


def loop(num_turns: int) -> Any:
    """Returns a script that calls a tool until it has so many turns."""

    def script(messages: Any) -> Message | str:
        num_before = sum(message.role == "assistant" for message in messages)
        return CALL if num_before + 1 < num_turns else "42"

    return script


def final(row: Any, result: Any, transcript: Any) -> float:
    return float(transcript.final_answer == "42")


async def say(client: Any, endpoint: Any, shape: Any, history: list[Any], system_text: str) -> Answer:
    body = shape.write(system_text, history, True)
    answer = await client.http.post(f"{endpoint.base_url}/{shape.path}", json=body)
    if answer.status_code != 200:
        raise RuntimeError(answer.text)
    said = shape.read(answer.text)
    history.append(("turn", said))
    history.extend(("result", call_id, "42") for call_id, _, _ in said.calls)
    return said


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["claude_code", "opencode", "codex"])
@pytest.mark.parametrize("by", ["answer", "max_turns", "max_tokens"])
async def test_a_system_text_that_changes_keeps_the_conversation(
    stage: Any, client: Any, limits: Any, name: str, by: str
) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        history: list[Any] = [("user", TASK)]
        for number in range(7):
            said = await say(client, endpoint, SHAPES[name], history, f"You are an agent. It is {number} o'clock.")
            if not said.calls:
                break
        return ""

    budgets = {"max_turns": {"max_turns": 4}, "max_tokens": {"max_episode_tokens": 400}}.get(by, {})
    episode, policy = await stage.play(
        agent, loop(6), score=final, limits=replace(limits, **budgets), ignore=SHAPES[name].ignore, max_sides=0
    )
    assert episode.num_side_rows == 0 and episode.stop_reason.value == {"answer": "answered"}.get(by, by), episode.error
    if by == "answer":
        policy.assert_trained(episode)
        assert (episode.reward.outcome, len(episode.actions), episode.numbers()["tool_calls"]) == (1.0, 6, 5)


async def test_a_sub_agent_whose_system_text_changes_is_one_conversation(stage: Any, client: Any) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        own: list[Any] = [("user", TASK)]
        helper: list[Any] = [("user", "help")]
        await say(client, endpoint, SHAPES["opencode"], own, "You are an agent.")
        for number in range(3):
            await say(client, endpoint, SHAPES["opencode"], helper, f"You help. {number}")
        for _ in range(3):
            await say(client, endpoint, SHAPES["opencode"], own, "You are an agent.")
        return ""

    episode, policy = await stage.play(agent, loop(4), score=final, max_sides=1, ignore=["temperature"])
    policy.assert_trained(episode)
    assert (episode.reward.outcome, episode.num_side_rows, episode.numbers()["sub_agents"]) == (1.0, 3, 1.0)


@pytest.mark.sample(3)
@pytest.mark.parametrize("form", ["blocks", "text", "joined", "chat", "instructions"])
async def test_a_header_of_accounting_is_no_part_of_the_prompt(stage: Any, client: Any, form: str) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        messages: list[Any] = [user("one")]
        for number in range(2):
            header = f"x-anthropic-billing-header: cc_version=2.1.{number}; cc_entrypoint=cli; cch=a{number};"
            parts = [{"type": "text", "text": header}, {"type": "text", "text": "Work."}]
            place, body = "messages", {"messages": messages, "max_tokens": 90}
            if form == "chat":
                place, body = "chat/completions", {"messages": [{"role": "system", "content": parts}, *messages]}
            elif form == "instructions":
                place, body = "responses", {"instructions": f"{header}\nWork.", "input": messages}
            else:
                body["system"] = {"blocks": parts, "text": f"{header}\nWork.", "joined": f"{header}Work."}[form]
            answer = await client.http.post(f"{endpoint.base_url}/{place}", json={"model": "m", **body})
            assert answer.status_code == 200, answer.text
            messages += [{"role": "assistant", "content": f"python {number}"}, user("two")]
        return "42"

    numbers = iter(range(9))
    episode, policy = await stage.play(agent, lambda messages: f"python {next(numbers)}")
    policy.assert_trained(episode)
    assert episode.reward.outcome == 1.0, episode.error
    (row,) = episode.trajectories
    assert "billing" not in stage.text(row.token_ids) and "system\nWork.<" in stage.text(row.prompt_ids)


async def test_an_agent_that_takes_over_the_history_continues_the_conversation(stage: Any, client: Any) -> None:
    def tool(name: str) -> dict[str, Any]:
        return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}

    async def agent(row: Any, endpoint: Any) -> str:
        messages = [user("one")]
        for number in range(3):
            message = await client.say(endpoint, [system(f"Role {number}."), *messages], tools=[tool(f"tool{number}")])
            messages += [message, user("on")]
        return "42"

    numbers = iter(range(9))
    episode, policy = await stage.play(agent, lambda messages: f"python {next(numbers)}", max_sides=0)
    policy.assert_trained(episode)
    assert (episode.num_side_rows, len(episode.trajectories), len(episode.actions)) == (0, 3, 3), episode.error


async def test_a_summary_of_the_whole_history_is_not_the_agents_answer(stage: Any, client: Any) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        history: list[Any] = [("user", TASK)]
        for _ in range(2):
            await say(client, endpoint, SHAPES["opencode"], history, "You are an agent.")
        body = SHAPES["opencode"].write("Sum up.", [*history, ("user", "Sum up.")], False)
        answer = await client.http.post(f"{endpoint.base_url}/chat/completions", json=body)
        return str(answer.status_code)

    episode, policy = await stage.play(agent, loop(2), score=final, ignore=["temperature"])
    policy.assert_trained(episode)
    assert (episode.reward.outcome, episode.num_side_rows, len(episode.actions)) == (1.0, 1, 2), episode.error


async def test_a_long_session_of_one_conversation_needs_no_sides(stage: Any, client: Any, limits: Any) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        for number in range(12):  # it shows the state alone, and asks how long that is
            messages = [system("Work."), user(f"state {number}")]
            await client.say(endpoint, [system("Count."), user(f"quota {number}")], max_tokens=1)
            await client.say(endpoint, messages)
        return "42"

    episode, policy = await stage.play(
        agent, lambda messages: "python", limits=replace(limits, max_turns=16), max_sides=0
    )
    policy.assert_trained(episode)
    assert (episode.reward.outcome, len(episode.actions), episode.num_side_rows) == (1.0, 12, 12), episode.error


async def test_helpers_of_one_kind_are_one_side_conversation_each(stage: Any, client: Any) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        own = [system("You lead."), user("go")]
        own += [await client.say(endpoint, own), user("on")]
        for task in ("left", "right"):
            helper = [system("You help."), user(task)]
            helper += [await client.say(endpoint, helper), user("sure?")]
            await client.say(endpoint, helper)
        await client.say(endpoint, own)
        return "42"

    numbers = iter(range(9))
    episode, policy = await stage.play(agent, lambda messages: f"python {next(numbers)}")
    policy.assert_trained(episode)
    assert (episode.num_side_rows, len(episode.actions), episode.messages[-1].content) == (2, 2, "python 5")


async def test_a_side_conversation_that_is_over_stays_over_and_the_episode_goes_on(
    stage: Any, client: Any, limits: Any
) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        own: list[Any] = [("user", TASK)]
        await say(client, endpoint, SHAPES["langgraph"], own, "You are an agent.")
        side, codes = [system("You help."), user("help")], []
        for _ in range(4):
            status, body = await client(endpoint, side)
            codes.append(status)
            if status == 200:
                side += [body["choices"][0]["message"], user("on")]
        await say(client, endpoint, SHAPES["langgraph"], own, "You are an agent.")
        return str(codes)

    def script(messages: Any) -> Any:
        return "python" if messages[0].role == "system" else loop(2)(messages)

    def score(row: Any, result: Any, transcript: Any) -> float:
        return float(result == "[200, 200, 404, 404]" and transcript.final_answer == "42")

    episode, _ = await stage.play(agent, script, score=score, limits=replace(limits, max_turns=2))
    assert (episode.reward.outcome, episode.stop_reason) == (1.0, StopReason.ANSWERED), episode.error


async def test_a_longer_side_conversation_is_reported_and_can_be_named(
    stage: Any, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        own: list[Any] = [("user", TASK)]
        await say(client, endpoint, SHAPES["langgraph"], own, "You are an agent.")
        side = [system("You chat."), user("hello")]
        for _ in range(3):
            side += [await client.say(endpoint, side), user("on")]
        await say(client, endpoint, SHAPES["langgraph"], own, "You are an agent.")
        return ""

    def script(messages: Any) -> Any:
        return "python" if messages[0].role == "system" else loop(2)(messages)

    with caplog.at_level(logging.WARNING):
        episode, _ = await stage.play(agent, script, score=final)
    assert episode.reward.outcome == 1.0 and len(episode.actions) == 2
    (warning,) = [record.getMessage() for record in caplog.records if "own_pattern" in record.getMessage()]
    assert "2 turns" in warning and "has 3" in warning
    caplog.clear()
    episode, _ = await stage.play(agent, script, score=final, own_pattern="You chat")
    assert len(episode.actions) == 3 and not [one for one in caplog.records if "own_pattern" in one.getMessage()]


BODIES = {
    "chat/completions": {"messages": [user("give JSON"), {"role": "assistant", "content": '{"a":'}]},
    "messages": {"messages": [user("give JSON"), {"role": "assistant", "content": '{"a":'}], "max_tokens": 9},
    "responses": {"input": [user("give JSON"), {"role": "assistant", "content": '{"a":'}]},
}
FUNCTION = {"name": "f", "arguments": "{}"}
WITHOUT_RESULT = {
    "chat/completions": {
        "messages": [
            user("go"),
            {"role": "assistant", "tool_calls": [{"id": i, "type": "function", "function": FUNCTION} for i in "ab"]},
            {"role": "tool", "tool_call_id": "a", "content": "x"},
            user("on"),
        ]
    },
    "messages": {
        "messages": [
            user("go"),
            {"role": "assistant", "content": [{"type": "tool_use", "id": i, "name": "f", "input": {}} for i in "ab"]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"}]},
        ],
        "max_tokens": 9,
    },
    "responses": {
        "input": [
            user("go"),
            *({"type": "function_call", "call_id": i, **FUNCTION} for i in "ab"),
            {"type": "function_call_output", "call_id": "a", "output": "x"},
        ]
    },
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(("bodies", "reason"), [(BODIES, "last message"), (WITHOUT_RESULT, "['b']")])
async def test_a_history_that_no_turn_can_follow_is_refused(
    stage: Any, client: Any, path: str, bodies: Any, reason: str, streams: bool
) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        body = {"model": "m", "stream": streams, **bodies[path]}
        answer = await client.http.post(f"{endpoint.base_url}/{path}", json=body)
        error = answer.json()["error"]
        assert (answer.status_code, error["type"]) == (400, "invalid_request_error") and reason in error["message"]
        await client.say(endpoint, [user("go")])
        counted = await client.http.post(f"{endpoint.base_url}/messages/count_tokens", json=BODIES["messages"])
        return "42" if counted.status_code == 200 else counted.text

    episode, policy = await stage.play(agent, lambda messages: "python")
    assert (episode.reward.outcome, len(policy.samples)) == (1.0, 1), episode.error


PARTS = [{"type": "text", "text": "AB"}, {"type": "text", "text": "CD"}]


@pytest.mark.parametrize(
    ("server", "between", "in_system"), [(None, "\n", ""), ("vllm", "\n", ""), ("sglang", " ", "\n")]
)
async def test_text_parts_are_joined_as_the_server_does(
    stage: Any, client: Any, server: str | None, between: str, in_system: str
) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        called = {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": FUNCTION}]}
        results = {"role": "tool", "tool_call_id": "a", "content": PARTS}
        messages = [{"role": "system", "content": PARTS}, {"role": "user", "content": PARTS}, called, results]
        await client.say(endpoint, messages)
        inputs = [{"type": "input_text", "text": part["text"]} for part in PARTS]
        for path, body in {
            "responses": {"input": [{"role": "user", "content": inputs}]},
            "messages": {"system": PARTS, "messages": [{"role": "user", "content": PARTS}], "max_tokens": 9},
        }.items():
            answer = await client.http.post(f"{endpoint.base_url}/{path}", json={"model": "m", **body})
            assert answer.status_code == 200, answer.text
        return "42"

    options = {"server": server} if server else {}
    episode, policy = await stage.play(agent, lambda messages: "python", **options)
    assert episode.reward.outcome == 1.0, episode.error
    chat, responses, anthropic = (stage.text(context) for context, _, _ in policy.samples)
    assert (chat.count(f"AB{between}CD"), responses.count(f"AB{between}CD")) == (3, 1)
    assert f"user\nAB{between}CD" in anthropic and f"system\nAB{in_system}CD" in anthropic


def test_an_unknown_server_is_refused(row: Any) -> None:
    with pytest.raises(ConfigError, match="server"):
        make_env(row, server="triton")  # pyright: ignore[reportArgumentType]


@pytest.mark.sample(3)
@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
async def test_thoughts_that_a_proxy_has_split_off_are_part_of_the_turn(
    stage: Any, client: Any, path: str, streams: bool
) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        history: list[dict[str, Any]] = [user("go")]
        for _ in range(3):
            body: dict[str, Any] = {"input" if path == "responses" else "messages": history, "stream": streams}
            body |= {"max_tokens": 90} if path == "messages" else {}
            answer = await client.http.post(f"{endpoint.base_url}/{path}", json={"model": "m", **body})
            assert answer.status_code == 200, answer.text
            if path == "chat/completions":
                history.append({"role": "assistant", "content": "yes", "reasoning_content": "hm"})
            elif path == "messages":
                blocks = [{"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "yes"}]
                history.append({"role": "assistant", "content": blocks})
            else:
                thoughts = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
                history += [thoughts, {"role": "assistant", "content": "yes"}]
            history.append(user("on"))
        return "42"

    episode, policy = await stage.play(agent, lambda messages: "<think>\nhm\n</think>\n\nyes")
    policy.assert_trained(episode)
    assert (episode.reward.outcome, len(episode.trajectories), len(episode.actions)) == (1.0, 1, 3), episode.error


async def test_thoughts_that_are_not_those_of_the_turn_rewrite_it(stage: Any, client: Any) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        await client.say(endpoint, [user("go")])
        said = {"role": "assistant", "content": "yes", "reasoning_content": "other thoughts"}
        await client.say(endpoint, [user("go"), said, user("on")])
        return "42"

    episode, policy = await stage.play(agent, lambda messages: "<think>hm</think>yes")
    policy.assert_trained(episode)
    assert (episode.num_side_rows, len(episode.trajectories), len(episode.actions)) == (0, 2, 2)


async def test_an_agent_that_fails_over_a_cut_turn_has_the_cause_in_its_record(stage: Any, client: Any) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        _, body = await client(endpoint, [user("go")], max_tokens=4)
        if body["choices"][0]["finish_reason"] == "length":
            raise ValueError("the answer is not complete")
        return "42"

    episode, _ = await stage.play(agent, lambda messages: "python")
    assert (episode.stop_reason, episode.reward.outcome) == (StopReason.AGENT_FAILED, 0.0)
    assert "not complete" in str(episode.error) and "cut at the 4 tokens" in str(episode.error)


async def test_an_agent_that_fails_over_a_budget_has_the_budget_in_its_record(
    stage: Any, client: Any, limits: Any
) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        messages = [user("go")]
        while True:
            messages += [await client.say(endpoint, messages), user("on")]

    episode, _ = await stage.play(agent, lambda messages: "python", limits=replace(limits, max_turns=2))
    assert episode.stop_reason is StopReason.MAX_TURNS and "AssertionError" in str(episode.error)
    assert "max_turns" in str(episode.error)


async def test_an_agent_that_works_in_a_side_conversation_does_not_hang(stage: Any, client: Any) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        await client.say(endpoint, [system("Write a title."), user(TASK)])
        history: list[Any] = [("user", TASK)]
        for _ in range(4):
            await asyncio.sleep(0.15)
            await say(client, endpoint, SHAPES["langgraph"], history, "You are an agent.")
        return ""

    episode, _ = await stage.play(agent, loop(4), score=final, agent_timeout_s=0.4)
    assert (episode.reward.outcome, episode.stop_reason) == (1.0, StopReason.ANSWERED), episode.error
    assert json.dumps(episode.numbers())


async def test_an_exception_that_must_leave_the_episode_leaves_it(stage: Any, client: Any) -> None:
    class LeaveError(BaseException):
        pass

    def script(messages: Any) -> str:
        raise LeaveError

    async def agent(row: Any, endpoint: Any) -> str:
        await client(endpoint, [user("go")])
        return "42"

    with pytest.raises(LeaveError):
        await stage.play(agent, script)
