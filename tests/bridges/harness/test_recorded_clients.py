"""Sequences of requests as published agents send them: one conversation is the agent's, whatever comes beside it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from client_shapes import SHAPES, SYSTEMS, TASK, Event, Shape

from verl_agentic.base.types import Message, StopReason, ToolCall

TASKS = {"main": TASK, "title": f"Write a title for this task: {TASK}", "worker": "Count the files.", "probe": "quota"}
MULTIPLY = Message("assistant", "I multiply.", tool_calls=(ToolCall("multiply", {"left": 6, "right": 7}),))
DELEGATE = Message("assistant", "", tool_calls=(ToolCall("task", {"prompt": TASKS["worker"]}),))
PLANS: dict[str, list[Message | str]] = {
    "main": [MULTIPLY, DELEGATE, "42"],
    "worker": [MULTIPLY, MULTIPLY, MULTIPLY, "7 files"],
    "title": ["Six by seven"],
    "probe": ["hello"],
}
TEXT_PLANS: dict[str, list[Message | str]] = {
    **PLANS,
    "main": ["Run it.\n```bash\nexpr 6 '*' 7\n```", "Check it.\n```bash\ntrue\n```", "42"],
    "worker": ["```bash\nls | wc -l\n```", "7 files"],
}
FIELDS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


@dataclass
class Talk:
    """One conversation of a client."""

    name: str
    shape: Shape
    url: str
    http: Any
    plans: dict[str, list[Message | str]]
    history: list[Event] = field(default_factory=list)
    num_asked: int = 0

    async def ask(self) -> str:
        """Sends the next request, and returns the text of the answer."""
        if not self.history:
            self.history.append(("user", TASKS[self.name]))
        is_agent = self.name in ("main", "worker")
        body = self.shape.write(SYSTEMS.get(self.name, SYSTEMS["title"]), self.history, is_agent)
        if self.name == "probe":
            body = {name: value for name, value in body.items() if name not in FIELDS}
            body |= {{"responses": "max_output_tokens"}.get(self.shape.path, "max_tokens"): 1}
        answer = await self.http.post(f"{self.url}/{self.shape.path}", json=body)
        assert answer.status_code == 200, answer.text
        said = self.shape.read(answer.text)
        self.history.append(("turn", said))
        self.num_asked += 1
        if said.calls:
            self.history += [("result", call_id, "a result") for call_id, _, _ in said.calls]
        elif self.num_asked < len(self.plans[self.name]):
            self.history.append(("result", "", "a result"))
        return said.text


def name_of(task: str) -> str:
    """Returns the conversation that begins with a message of the user."""
    return next(name for name in ("title", "worker", "probe", "main") if task.endswith(TASKS[name]))


def script_of(plans: dict[str, list[Message | str]]) -> Any:
    def script(messages: Sequence[Message]) -> Message | str:
        name = name_of(next(message.content for message in messages if message.role == "user"))
        return plans[name][sum(message.role == "assistant" for message in messages) % len(plans[name])]

    return script


def score(row: Any, result: Any, transcript: Any) -> float:
    return float(transcript.final_answer == "42")


async def play(
    stage: Any, client: Any, shape: Shape, schedule: Sequence[Sequence[str]], plans: Any, **options: Any
) -> Any:
    """Plays the requests of a schedule, whose steps are names of conversations that ask at the same time."""

    async def agent(row: Any, endpoint: Any) -> str:
        talks: dict[str, Talk] = {}
        for step in schedule:
            for name in step:
                if name not in talks or name in ("title", "probe"):
                    talks[name] = Talk(name, shape, endpoint.base_url, client.http, plans)
            await asyncio.gather(*(talks[name].ask() for name in step))
        return ""

    return await stage.play(agent, script_of(plans), score=score, ignore=shape.ignore, **options)


MAIN, TITLE, PROBE, WORKER = ("main",), ("title",), ("probe",), ("worker",)
WITH_WORKER = [MAIN, MAIN, WORKER, WORKER, WORKER, WORKER, MAIN]
WITH_SHORT_WORKER = [MAIN, WORKER, WORKER, MAIN, MAIN]
# Client -> its requests, rows in all, rows beside the agent's own, trained tokens of its own and in all.
RECORDED: dict[str, tuple[list[Any], int, int, int, int]] = {
    "claude_code": ([PROBE, TITLE, *WITH_WORKER, TITLE], 5, 4, 186, 509),
    "opencode": ([("title", "main"), *WITH_WORKER[1:]], 3, 2, 186, 495),
    "codex": ([PROBE, *WITH_WORKER], 8, 5, 186, 483),
    "openhands": ([*WITH_WORKER, TITLE], 3, 2, 186, 495),
    "mini_swe_agent": ([*WITH_SHORT_WORKER, TITLE], 3, 2, 63, 107),
    "langgraph": ([TITLE, *WITH_WORKER], 3, 2, 186, 495),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", RECORDED)
async def test_the_own_conversation_of_a_client_is_the_episode(stage: Any, client: Any, name: str) -> None:
    schedule, rows, sides, own_tokens, all_tokens = RECORDED[name]
    plans = TEXT_PLANS if name == "mini_swe_agent" else PLANS
    episode, policy = await play(stage, client, SHAPES[name], schedule, plans)
    policy.assert_trained(episode)
    assert (episode.reward.outcome, episode.stop_reason) == (1.0, StopReason.ANSWERED), episode.error
    assert (len(episode.actions), episode.messages[-1].content) == (3, "42")
    assert episode.numbers()["tool_calls"] == (0 if plans is TEXT_PLANS else 2)
    trained = [sum(row.response_mask) for row in episode.trajectories]
    assert (len(episode.trajectories), episode.num_side_rows) == (rows, sides)
    assert (sum(trained[sides:]), sum(trained)) == (own_tokens, all_tokens)


class Gates:
    """Holds each turn of the policy until the test lets it go, so that any requests may wait at the same time."""

    def __init__(self, plans: Any) -> None:
        self._script, self._plans = script_of(plans), plans
        self.waiting: dict[str, asyncio.Event] = {}

    async def __call__(self, messages: Sequence[Message]) -> Message | str:
        task = next(message.content for message in messages if message.role == "user")
        gate = self.waiting[name_of(task)] = asyncio.Event()
        await gate.wait()
        return self._script(messages)


async def play_interleaved(
    stage: Any, client: Any, shape: Shape, steps: dict[str, int], plans: Any, *, seed: int
) -> tuple[Any, Any]:
    """Plays conversations whose requests and answers come in a random order; a worker begins after its call."""
    rng, gates = random.Random(seed), Gates(plans)

    async def agent(row: Any, endpoint: Any) -> str:
        left, talks, asking = dict(steps), {}, {}
        while left or asking:
            is_called = "worker" in talks or ("main" in talks and talks["main"].num_asked >= 2)
            name = rng.choice(sorted({*left, *asking} - ({"worker"} if not is_called else set())))
            if name in asking:
                gates.waiting.pop(name).set()
                await asking.pop(name)
                continue
            left[name] -= 1
            if name not in talks or name in ("title", "probe"):
                talks[name] = Talk(name, shape, endpoint.base_url, client.http, plans)
            asking[name] = asyncio.ensure_future(talks[name].ask())
            while name not in gates.waiting:
                await asyncio.sleep(0)
            if not left[name]:
                del left[name]
        return ""

    return await stage.play(agent, gates, score=score, ignore=shape.ignore)


@pytest.mark.sample(1, slow=2)
@pytest.mark.parametrize("name", SHAPES)
async def test_the_order_of_side_requests_changes_nothing(stage: Any, client: Any, name: str) -> None:
    is_text = name == "mini_swe_agent"
    plans = TEXT_PLANS if is_text else PLANS
    steps = {"main": 3, "title": 2, "probe": 2, "worker": len(plans["worker"])}
    played = set()
    for seed in range(12):
        episode, policy = await play_interleaved(stage, client, SHAPES[name], steps, plans, seed=seed)
        policy.assert_trained(episode)
        texts = [
            stage.text([t for t, m in zip(r.response_ids, r.response_mask, strict=True) if m])
            for r in episode.trajectories
        ]
        own, sides = texts[episode.num_side_rows :], sorted(texts[: episode.num_side_rows])
        messages = tuple((m.role, m.content) for m in episode.messages if m.role != "system")
        played.add((messages, episode.stop_reason, episode.reward.outcome, tuple(own), tuple(sides)))
    assert len(played) == 1
    ((messages, stop, outcome, _, _),) = played
    assert (messages[-1], stop, outcome) == (("assistant", "42"), StopReason.ANSWERED, 1.0)
