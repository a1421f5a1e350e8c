"""Conversations of agents that retry, compact, truncate, delegate, sample in parallel, or show examples."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest

from verl_agentic.base.types import Message, StopReason, ToolCall

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("read", "task")
]
OTHER_TOOLS = TOOLS[:1]


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def system(text: str) -> dict[str, str]:
    return {"role": "system", "content": text}


def final(row: Any, result: Any, transcript: Any) -> float:
    return float(transcript.final_answer == "42")


class Turns:
    """A script that returns the given turns in their order."""

    def __init__(self, *turns: Message | str) -> None:
        self._turns = iter(turns)

    def __call__(self, messages: Any) -> Message | str:
        return next(self._turns)


def reading(path: str, tool: str = "read", argument: str = "path") -> Message:
    return Message("assistant", f"I look at {path}.", tool_calls=(ToolCall(tool, {argument: path}),))


async def extend(client: Any, endpoint: Any, messages: list[Any], head: str = "", **fields: Any) -> Any:
    """Asks for a turn, and adds it and the results of its calls to the messages."""
    said = await client.say(endpoint, [*([system(head)] if head else []), *messages], **fields)
    messages.append(said)
    messages += [{"role": "tool", "tool_call_id": c["id"], "content": "a file"} for c in said.get("tool_calls") or ()]
    return said


@pytest.mark.sample(1)
@pytest.mark.parametrize("difference", ["header", "stream", "metadata"])
async def test_a_retry_is_known_by_what_it_asks(stage: Any, client: Any, difference: str) -> None:
    release = asyncio.Event()

    async def script(messages: Any) -> str:
        await release.wait()
        return "python"

    async def agent(row: Any, endpoint: Any) -> str:
        def body(number: int) -> dict[str, Any]:
            head = f"x-anthropic-billing-header: cc_version=2; cch=a{number};" if difference == "header" else "v"
            return {
                "model": "m",
                "system": [{"type": "text", "text": head}, {"type": "text", "text": "Work."}],
                "messages": [user("go")],
                "max_tokens": 90,
                "stream": difference == "stream" and number == 0,
                "metadata": {"user_id": f"{number if difference == 'metadata' else 0}"},
            }

        url = f"{endpoint.base_url}/messages"
        first = asyncio.ensure_future(client.http.post(url, json=body(0)))
        await asyncio.sleep(0.05)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await asyncio.sleep(0.2)
        asyncio.get_running_loop().call_later(0.05, release.set)
        answer = await client.http.post(url, json=body(1))
        late = await client.http.post(url, json=body(2), headers={"x-stainless-retry-count": "1"})
        return "42" if answer.json()["id"] == late.json()["id"] else "other"

    episode, policy = await stage.play(agent, script)
    policy.assert_trained(episode)
    assert (episode.reward.outcome, len(policy.samples), episode.num_side_rows) == (1.0, 1, 0), episode.error


@pytest.mark.parametrize("order", [("own", "helper"), ("helper", "own")])
async def test_examples_are_no_turns_of_a_conversation(stage: Any, client: Any, order: Sequence[str]) -> None:
    examples = [user("2*3"), {"role": "assistant", "content": "6"}]

    async def agent(row: Any, endpoint: Any) -> str:
        own, helper = [*examples, user("6*7")], [*examples, user("name a colour")]
        for name in order:
            if name == "own":
                await extend(client, endpoint, own, tools=TOOLS)
                await extend(client, endpoint, own, tools=TOOLS)
            else:
                await extend(client, endpoint, helper, "You help.", tools=TOOLS)
        return ""

    def script(messages: Any) -> Message | str:
        if any(message.content == "name a colour" for message in messages):
            return "blue"
        return "42" if messages[-1].role == "tool" else reading("a.py")

    episode, policy = await stage.play(agent, script, score=final)
    policy.assert_trained(episode)
    assert (episode.reward.outcome, len(episode.actions), episode.num_side_rows) == (1.0, 2, 1), episode.error


@pytest.mark.parametrize("server", ["vllm", "sglang"])
async def test_a_call_makes_a_sub_agent_only_of_what_begins_after_it(stage: Any, client: Any, server: str) -> None:
    # The sub-agent reads a file whose path is the last line of the agent's task.
    task, job = "Fix this file:\nsrc/a.py", "Count the lines of every file."

    async def agent(row: Any, endpoint: Any) -> str:
        own: list[Any] = [user(task)]
        parts = [{"type": "text", "text": text} for text in ("<reminder>Be brief.</reminder>", job)]
        helper: list[Any] = [{"role": "user", "content": parts}]
        await extend(client, endpoint, own, "You lead.", tools=TOOLS)
        for _ in range(4):
            await extend(client, endpoint, helper, "You search.", tools=OTHER_TOOLS)
        await extend(client, endpoint, own, "You lead.", tools=TOOLS)
        return ""

    turns = [reading(job, "task", "prompt"), *map(reading, ("src/a.py", "b.py", "c.py")), "3 files", "42"]
    episode, policy = await stage.play(agent, Turns(*turns), score=final, server=server)
    policy.assert_trained(episode)
    assert (episode.reward.outcome, len(episode.actions)) == (1.0, 2), episode.messages


@pytest.mark.sample(3)
@pytest.mark.parametrize("is_changing", [False, True], ids=["constant", "changing"])
@pytest.mark.parametrize("writer", ["agent", "summarizer"])
async def test_a_history_that_is_replaced_by_its_summary_is_the_same_conversation(
    stage: Any, client: Any, is_changing: bool, writer: str
) -> None:
    clock = itertools.count()

    def head() -> str:
        return f"You are an agent with long instructions. It is {next(clock) if is_changing else 0} o'clock."

    async def agent(row: Any, endpoint: Any) -> str:
        own: list[Any] = [user("go")]
        for _ in range(3):
            await extend(client, endpoint, own, head(), tools=TOOLS)
        own.append(user("Sum up."))
        fields = {"tools": TOOLS} if writer == "agent" else {}
        summary = await extend(client, endpoint, own, head() if writer == "agent" else "You sum up.", **fields)
        own = [user(f"The session goes on. Summary:\n{summary['content']}\nGo on.")]
        await extend(client, endpoint, own, head(), tools=TOOLS)
        await extend(client, endpoint, own, head(), tools=TOOLS)
        return ""

    turns = [
        *map(reading, ("a.py", "b.py", "c.py")),
        "We have read three files, and none is wrong.",
        reading("d"),
        "42",
    ]
    episode, policy = await stage.play(agent, Turns(*turns), score=final)
    policy.assert_trained(episode)
    expected = (1.0, 6, 0) if writer == "agent" else (1.0, 5, 1)
    assert (episode.reward.outcome, len(episode.actions), episode.num_side_rows) == expected, episode.messages


async def test_a_sub_agent_that_sums_up_does_not_become_the_agent(stage: Any, client: Any) -> None:
    job = "Count the lines of every file."

    async def agent(row: Any, endpoint: Any) -> str:
        own: list[Any] = [user("go")]
        await extend(client, endpoint, own, "You lead.", tools=TOOLS)
        helper: list[Any] = [user(job)]
        for _ in range(2):
            summary = await extend(client, endpoint, helper, "You search.", tools=OTHER_TOOLS)
        helper = [user(f"Summary: {summary['content']}")]
        for _ in range(4):
            await extend(client, endpoint, helper, "You search.", tools=OTHER_TOOLS)
        await extend(client, endpoint, own, "You lead.", tools=TOOLS)
        return ""

    turns = [
        reading(job, "task", "prompt"),
        reading("a"),
        "One of three is counted.",
        *map(reading, "bcd"),
        "7",
        "42",
    ]
    episode, policy = await stage.play(agent, Turns(*turns), score=final)
    policy.assert_trained(episode)
    assert (episode.reward.outcome, len(episode.actions)) == (1.0, 2), episode.messages
    assert episode.numbers()["sub_agents"] == 1.0


@pytest.mark.sample(2)
@pytest.mark.parametrize("order", list(itertools.permutations(("own", "title", "topic"))), ids="-".join)
@pytest.mark.parametrize("result", ["42", {"answer": "42"}, None], ids=["text", "section", "none"])
@pytest.mark.parametrize("fields", [{}, {"tools": TOOLS}], ids=["plain", "tools"])
async def test_the_own_conversation_of_one_turn_does_not_depend_on_the_order(
    stage: Any, client: Any, order: Sequence[str], result: Any, fields: Any
) -> None:
    heads = {"own": "You are an agent. " + "Follow these rules. " * 9, "title": "Write a title.", "topic": "New topic?"}
    said = {"own": "42", "title": "Six by seven", "topic": "yes"}
    gates = {name: asyncio.Event() for name in heads}

    async def script(messages: Any) -> str:
        name = next(name for name, head in heads.items() if messages[0].content == head)
        await gates[name].wait()
        return said[name]

    async def agent(row: Any, endpoint: Any) -> Any:
        asked = [
            asyncio.ensure_future(client.say(endpoint, [system(head), user("What is 6*7?")], **fields))
            for head in heads.values()
        ]
        for name in order:
            gates[name].set()
            await asyncio.sleep(0.05)
        await asyncio.gather(*asked)
        return result

    episode, policy = await stage.play(agent, script, score=final)
    policy.assert_trained(episode)
    assert (episode.reward.outcome, episode.num_side_rows) == (1.0, 2), episode.messages


async def test_the_agents_result_shows_which_conversation_is_its_own(stage: Any, client: Any) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        said = await client.say(endpoint, [user("What is 6*7?")])
        await client.say(endpoint, [system("Write a title. " * 9), user("What is 6*7?")])
        return f"The answer: {said['content']}"

    episode, _ = await stage.play(agent, Turns("42", "Six by seven"), score=final)
    assert episode.reward.outcome == 1.0, episode.messages


async def test_the_last_turn_without_tools_belongs_to_a_conversation_whose_system_text_changes(
    stage: Any, client: Any
) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        own: list[Any] = [user("go")]
        for number in range(3):
            await extend(client, endpoint, own, f"You are an agent. Steps left: {2 - number}.", tools=TOOLS,
                         tool_choice="none" if number == 2 else "auto")  # fmt: skip
        await client.say(endpoint, [system("Write a title of at most five words."), *own, user("Title?")])
        return ""

    episode, policy = await stage.play(agent, Turns(reading("a"), reading("b"), "42", "Two files"), score=final)
    policy.assert_trained(episode)
    assert (episode.reward.outcome, len(episode.actions), episode.num_side_rows) == (1.0, 3, 1), episode.messages


@pytest.mark.sample(2)
@pytest.mark.parametrize("kept", ["reminder", "window", "result"])
async def test_agents_that_edit_their_history_keep_their_conversations(stage: Any, client: Any, kept: str) -> None:
    """Both agents begin with equal turns, so that only their tasks and instructions differ."""

    def edited(messages: list[Any], number: int) -> list[Any]:
        if kept == "reminder":
            return [user(f"<note>{number}</note>\n{messages[0]['content']}"), *messages[1:]]
        if kept == "result":
            return [
                m | {"content": "[cleared]"} if m["role"] == "tool" and m is not messages[-1] else m for m in messages
            ]
        return [messages[0], *messages[-4:]] if len(messages) > 5 else messages

    async def agent(row: Any, endpoint: Any) -> str:
        talks = {"You lead.": [user("go")], "You search.": [user("Count.")]}
        for number, head in enumerate(["You lead.", "You search."] * 3 + ["You lead."]):
            messages = talks[head]
            said = await client.say(endpoint, [system(head), *edited(messages, number)], tools=TOOLS)
            messages.append(said)
            for call in said.get("tool_calls") or ():
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": f"{head} {number}"})
        return ""

    turns = [reading("a"), reading("a"), reading("b"), reading("b"), reading("c"), "3 files", "42"]
    episode, policy = await stage.play(agent, Turns(*turns), score=final, max_sides=1)
    policy.assert_trained(episode)
    assert (episode.reward.outcome, len(episode.actions)) == (1.0, 4), episode.messages


async def test_a_conversation_that_is_over_cannot_be_begun_anew_with_less(stage: Any, client: Any) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        own: list[Any] = [user("go")]
        await extend(client, endpoint, own, tools=TOOLS)
        side: list[Any] = [system("You help."), user("help")]
        side += [await client.say(endpoint, side), user("x" * 9_000)]
        codes = [(await client(endpoint, messages))[0] for messages in (side, [*side[:-1], user("on")], side[:2])]
        await extend(client, endpoint, own, tools=TOOLS)
        return str(codes)

    def score(row: Any, result: Any, transcript: Any) -> float:
        return float(result == "[404, 404, 404]" and transcript.final_answer == "42")

    episode, policy = await stage.play(agent, Turns(reading("a"), "python", "42"), score=score)
    policy.assert_trained(episode)
    assert (episode.reward.outcome, episode.stop_reason) == (1.0, StopReason.ANSWERED), episode.error


@pytest.mark.sample(1)
@pytest.mark.parametrize("pause_s", [0.1, 1.2])
async def test_only_the_time_without_a_request_counts_as_a_hang(stage: Any, client: Any, pause_s: float) -> None:
    async def script(messages: Any) -> str:
        await asyncio.sleep(0.6)  # the policy may take longer than the agent may
        return "42"

    async def agent(row: Any, endpoint: Any) -> str:
        await client.say(endpoint, [user("go")])
        await asyncio.sleep(pause_s)
        return "42"

    episode, _ = await stage.play(agent, script, agent_timeout_s=0.4)
    is_hang = pause_s > 0.4
    assert (episode.stop_reason, episode.reward.outcome) == (
        (StopReason.AGENT_FAILED, 0.0) if is_hang else (StopReason.ANSWERED, 1.0)
    )
    assert ("within 0.4 s" in str(episode.error)) == is_hang


@pytest.mark.sample(3)
@pytest.mark.parametrize("change", ["result", "tools"])
@pytest.mark.parametrize("end", ["</think>", "</thinking>"])
async def test_a_turn_keeps_its_thoughts_in_a_row_that_begins_later(
    stage: Any, client: Any, end: str, change: str
) -> None:
    """The agent has the thoughts apart, changes a later result or its tools: they stay in the context."""
    begin = end.replace("/", "")

    async def agent(row: Any, endpoint: Any) -> str:
        messages: list[Any] = [user("go")]
        for number in range(3):
            tools = OTHER_TOOLS if number == 2 and change == "tools" else TOOLS
            said = await extend(client, endpoint, messages, tools=tools)
            place = messages.index(said)
            thoughts, _, text = (said["content"] or "").removeprefix(begin).partition(end)
            messages[place] = said | {"content": text or None, "reasoning_content": thoughts}
            if number == 1 and change == "result":
                messages[-1] = messages[-1] | {"content": "changed"}
        return ""

    def turn(number: int) -> Message:
        call = (ToolCall("read", {"path": str(number)}),)
        return Message("assistant", f"{begin}thought {number}{end}I read.", tool_calls=call)

    episode, policy = await stage.play(agent, Turns(turn(0), turn(1), f"{begin}done{end}42"))
    policy.assert_trained(episode)
    context = stage.text(policy.samples[-1][0])
    assert all(f"{begin}thought {number}{end}" in context for number in range(2)), context


@pytest.mark.parametrize("fields", [{}, {"tools": TOOLS}], ids=["plain", "tools"])
async def test_an_agent_that_shows_the_state_alone_may_show_the_time(stage: Any, client: Any, fields: Any) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        for number in range(5):
            head = system(f"Work. It is 12:0{number}. Run cch=a{number}f.")
            await client.say(endpoint, [head, user(f"state {number}")], **fields)
        return "42"

    episode, policy = await stage.play(agent, lambda messages: "python", max_sides=0)
    policy.assert_trained(episode)
    assert (episode.reward.outcome, len(episode.actions), episode.num_side_rows) == (1.0, 5, 0), episode.error


async def test_agents_with_one_task_that_differ_by_a_number_are_apart(stage: Any, client: Any) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        talks: list[list[Any]] = [[system(f"You are agent {number}."), user("Debate.")] for number in range(2)]
        for number in (0, 1, 0, 1, 0):
            talks[number] += [await client.say(endpoint, talks[number]), user("Reply.")]
        return ""

    numbers = itertools.count()
    episode, policy = await stage.play(agent, lambda messages: f"python {next(numbers)}")
    policy.assert_trained(episode)
    assert (len(episode.actions), episode.num_side_rows, episode.messages[-1].content) == (3, 1, "python 4")


async def test_an_empty_turn_is_a_turn_under_another_message_of_the_system(stage: Any, client: Any) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        messages: list[Any] = [user("go")]
        for head in ("Open files: a.", "Open files: a, b.", "Nothing is open."):
            messages += [await client.say(endpoint, [system(head), *messages], tools=TOOLS), user("Go on.")]
        return ""

    episode, policy = await stage.play(agent, Turns("", "", "42"), score=final, max_sides=0)
    policy.assert_trained(episode)
    assert (episode.reward.outcome, len(episode.actions)) == (1.0, 3), episode.error


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(3))
async def test_parallel_sub_agents_of_one_role_keep_their_conversations(stage: Any, client: Any, seed: int) -> None:
    """Equal jobs and tools, and changing system texts, in any order of their requests."""
    rng, jobs = random.Random(seed), ["Count the lines of every file.", "Count the words of every file."] * 2
    tasks, numbers = tuple(ToolCall("task", {"prompt": job}) for job in jobs), itertools.count()

    async def agent(row: Any, endpoint: Any) -> str:
        own: list[Any] = [user("go")]
        await extend(client, endpoint, own, "You lead.", tools=TOOLS)

        async def work(job: str, number: int) -> None:
            messages: list[Any] = [user(job)]
            for turn in range(4):
                await extend(client, endpoint, messages, f"You search. {number}.{turn}", tools=OTHER_TOOLS)
                await asyncio.sleep(rng.random() * 0.05)

        await asyncio.gather(*(work(job, number) for number, job in enumerate(jobs)))
        await extend(client, endpoint, own, "You lead.", tools=TOOLS)
        return ""

    async def script(messages: Any) -> Message | str:
        await asyncio.sleep(rng.random() * 0.05)
        if messages[0].content == "You lead.":
            return "42" if messages[-1].role == "tool" else Message("assistant", "", tool_calls=tasks)
        return reading(str(next(numbers)))

    episode, policy = await stage.play(agent, script, score=final)
    policy.assert_trained(episode)
    assert (episode.reward.outcome, len(episode.actions)) == (1.0, 2), episode.messages
    assert episode.numbers()["sub_agents"] == 4.0 and len(policy.samples) == 18


async def test_a_history_that_parts_keeps_its_number_of_turns(stage: Any, client: Any) -> None:
    gate = asyncio.Event()

    async def script(messages: Any) -> str:
        if messages[-1].content == "left":
            await gate.wait()
        return {"left": "41", "right": "on", "end": "42"}.get(messages[-1].content, f"python {len(messages)}")

    async def agent(row: Any, endpoint: Any) -> str:
        messages: list[Any] = [user("go")]
        for _ in range(3):
            messages += [await client.say(endpoint, messages), user("next")]
        left = asyncio.ensure_future(client.say(endpoint, [*messages[:-1], user("left")]))
        await asyncio.sleep(0.1)
        messages[-1] = user("right")
        messages += [await client.say(endpoint, messages), user("end")]
        gate.set()
        await left
        await client.say(endpoint, messages)
        return ""

    episode, policy = await stage.play(agent, script, score=final)
    policy.assert_trained(episode)
    assert episode.reward.outcome == 1.0, episode.messages


async def test_a_short_turn_in_another_text_is_no_summary(stage: Any, client: Any) -> None:
    async def agent(row: Any, endpoint: Any) -> str:
        own: list[Any] = [user("go")]
        for _ in range(2):
            own += [await client.say(endpoint, [system("You are an agent that leads."), *own], tools=TOOLS), user("on")]
        await client.say(endpoint, [system("You are an agent that helps."), user("Count to 42.")], tools=TOOLS)
        return ""

    episode, policy = await stage.play(agent, Turns("python", "42", "No."), score=final)
    policy.assert_trained(episode)
    assert (episode.reward.outcome, episode.num_side_rows) == (1.0, 1), episode.messages


@pytest.mark.parametrize("frame", ["{}", "Your manager asks:\n{}\n---\nBe brief.", "Notes.\n\n{}"])
async def test_a_job_in_a_frame_is_a_sub_agents(stage: Any, client: Any, frame: str) -> None:
    job = "Count the lines of every file."

    async def agent(row: Any, endpoint: Any) -> str:
        own: list[Any] = [user("go")]
        helper: list[Any] = [user(frame.format(job))]
        await extend(client, endpoint, own, "You lead.", tools=TOOLS)
        for _ in range(3):
            await extend(client, endpoint, helper, "You search.", tools=OTHER_TOOLS)
        await extend(client, endpoint, own, "You lead.", tools=TOOLS)
        return ""

    episode, policy = await stage.play(
        agent, Turns(reading(job, "task", "prompt"), *map(reading, "abc"), "42"), score=final
    )
    policy.assert_trained(episode)
    assert (episode.reward.outcome, len(episode.actions)) == (1.0, 2), episode.messages
