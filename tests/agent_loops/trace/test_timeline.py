"""Timelines: the spans of an episode, and the span that it waits for now."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from fakes import END, LIMITS, ROW, CharCodec, FakeEnv, decode, encode, episode_setup
from sub_agents import play as play_sub_agents
from sub_agents import script as sub_agent_script

from verl_agentic.base.deadlines import OverrunError, within
from verl_agentic.base.env import Transcript
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Action, Message, Observation, Reward, ToolCall, ToolResult
from verl_agentic.episode.policies.policy import Completion, ScriptedPolicy
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.run_episode import run_episode
from verl_agentic.episode.trace import timeline as activity
from verl_agentic.episode.trace.timeline import Span, Timeline


class Tool:
    """Takes a while."""

    def __init__(self, name: str, seconds: float) -> None:
        self.name, self.seconds = name, seconds
        self.schema: dict[str, Any] = {}
        self.began, self.began_s = asyncio.Event(), 0.0

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        self.began_s = time.monotonic()
        self.began.set()
        await asyncio.sleep(self.seconds)
        return ToolResult("42")


class Codec(CharCodec):
    """`call:a,b` calls two tools."""

    async def decode_action(self, token_ids: Sequence[int], *, turn: int, tools: Sequence[object]) -> Action:
        text = decode(token_ids).rstrip("$")
        names = text.removeprefix("call:").split(",") if text.startswith("call:") else []
        return Action(turn=turn, text=text, content=text, tool_calls=tuple(ToolCall(name, {}) for name in names))


class Tools(ToolEnv):
    async def score(self, transcript: Transcript) -> Reward:
        return Reward(1.0)


class SlowPolicy:
    """Plays turns in order, each after a moment."""

    def __init__(self, *turns: str) -> None:
        self.script = ScriptedPolicy(
            lambda m: turns[sum(x.role == "assistant" for x in m)], encode=encode, end_ids=[END]
        )

    async def generate(self, prompt_ids: Sequence[int], **kwargs: Any) -> Completion:
        await asyncio.sleep(0.05)
        return await self.script.generate(prompt_ids, **kwargs)


async def play(policy: object, env: Any, **limits: Any) -> Episode:
    chosen = replace(episode_setup(policy, replace(LIMITS, **limits)), codec=Codec())  # type: ignore[arg-type]
    return await run_episode(ROW, make_env=lambda row: env, setup=chosen, request_id="r")


def seconds(episode: Episode, *kinds: str) -> float:
    spans = [span for span in episode.spans if span.kind in kinds and span.label != activity.SUB_AGENT]
    return sum(span.end_s - span.start_s for span in spans)


async def test_the_spans_of_an_episode_sum_to_what_it_spent_on_policy_and_environment() -> None:
    env = Tools(ROW, [Tool("slow", 0.05), Tool("fast", 0.01)])  # type: ignore[list-item]
    episode = await play(SlowPolicy("call:slow,fast", "call:nothing", "42"), env)
    assert [(s.kind, s.label, s.turn) for s in episode.spans if s.kind != "tool"] == [
        ("start", "", -1),
        ("generate", "", 0),
        ("step", "slow+fast", 0),
        ("generate", "", 1),
        ("step", "unknown", 1),
        ("generate", "", 2),
        ("step", "", 2),
        ("score", "", -1),
        ("close", "", -1),
    ]
    assert seconds(episode, "generate") == pytest.approx(episode.generate_s, abs=0.03) and episode.generate_s > 0.15
    assert seconds(episode, "start", "step") == pytest.approx(episode.env_s, abs=0.03) and episode.env_s > 0.05
    assert all(a.end_s <= b.start_s for a, b in pairwise(s for s in episode.spans if s.kind != "tool"))
    step = next(s for s in episode.spans if s.kind == "step")
    tools = {s.label: s for s in episode.spans if s.kind == "tool"}
    assert tools["fast"].end_s < tools["slow"].end_s
    assert set(tools) == {"slow", "fast", "unknown"} and tools["slow"].turn == 0 and tools["unknown"].turn == 1
    for name, least in (("slow", 0.05), ("fast", 0.01)):
        assert step.start_s <= tools[name].start_s and tools[name].end_s <= step.end_s
        assert tools[name].end_s - tools[name].start_s >= least
    assert not activity.running()


async def test_an_environment_that_gives_durations_only_has_calls_that_begin_with_its_step() -> None:
    class Timed(FakeEnv):
        async def step(self, action: Action) -> Observation:
            await asyncio.sleep(0.03)
            if not action.tool_calls:
                return await super().step(action)
            return Observation((Message("tool", "1", name="a", elapsed_s=0.02), Message("tool", "2", elapsed_s=9.0)))

    env = Timed(ROW, tools=[Tool("a", 0.0)])
    episode = await play(SlowPolicy("call:a,b", "42"), env)
    step = next(s for s in episode.spans if s.kind == "step")
    first, second = (s for s in episode.spans if s.kind == "tool")
    assert (first.label, second.label) == ("a", "unknown")
    assert first.end_s - first.start_s == pytest.approx(0.02) and first.start_s == pytest.approx(step.start_s, abs=5e-3)
    assert second.end_s == pytest.approx(step.end_s, abs=5e-3), "no call outlasts its step"


async def test_a_step_without_durations_is_one_call_of_all_its_tools() -> None:
    episode = await play(SlowPolicy("call:a,b,a", "42"), FakeEnv(ROW, tools=[Tool("a", 0.0), Tool("b", 0.0)]))
    (tool,) = (s for s in episode.spans if s.kind == "tool")
    assert tool.label == "a+b" and tool.turn == 0


async def test_every_attempt_is_in_the_spans_and_so_is_the_wait_between_them() -> None:
    failures = iter([ConnectionError("gone")])

    def fail_once(action: Action) -> None:
        for failure in failures:
            raise failure

    episode = await play(SlowPolicy("42"), FakeEnv(ROW, step_hook=fail_once))
    kinds = [span.kind for span in episode.spans]
    attempt = ["start", "generate", "step"]
    assert kinds == [*attempt, "close", "retry_wait", *attempt, "score", "close"]
    assert episode.retries == 1 and seconds(episode, "retry_wait") >= 0.01


async def test_turns_of_sub_agents_lie_in_the_call_that_delegates_and_are_not_the_agents_own() -> None:
    episode = await play_sub_agents(sub_agent_script())
    calls = [s for s in episode.spans if s.kind == "tool" and s.label == "delegate"]
    inner = [s for s in episode.spans if s.label == activity.SUB_AGENT and s.kind == "generate"]
    assert len(calls) == 2 and len(inner) == 2
    for span in inner:
        assert any(call.start_s <= span.start_s and span.end_s <= call.end_s for call in calls)
    assert seconds(episode, "generate") == pytest.approx(episode.generate_s, abs=0.03)


async def test_of_calls_that_run_side_by_side_the_one_that_hangs_is_named() -> None:
    fast, hangs = Tool("fast", 0.0), Tool("hangs", 30.0)
    env = Tools(ROW, [fast, hangs])  # type: ignore[list-item]
    before = time.monotonic()
    playing = asyncio.ensure_future(play(SlowPolicy("call:fast,hangs", "42"), env))
    await asyncio.wait_for(hangs.began.wait(), 10)
    (episode,) = activity.running()
    while not any(span.kind == "tool" for span in episode.spans):
        assert time.monotonic() < before + 10
        await asyncio.sleep(0.01)
    waits_for = episode.waits_for()
    assert waits_for is not None and (waits_for.kind, waits_for.label, waits_for.turn) == ("tool", "hangs", 0)
    assert before < waits_for.start <= hangs.began_s
    assert episode.uid == "r" and "tool" in {span.kind for span in episode.spans}, "the fast one has ended"
    playing.cancel()
    await asyncio.wait([playing])
    assert not activity.running()


async def test_siblings_have_timelines_of_their_own() -> None:
    async def one(uid: str, seconds: float) -> tuple[Span, ...]:
        with activity.recording(uid=uid) as timeline:
            with activity.span("generate", turn=len(uid)):
                await asyncio.sleep(seconds)
            return timeline.spans

    first, second = await asyncio.gather(one("a", 0.01), one("bb", 0.02))
    assert [s.turn for s in first] == [1] and [s.turn for s in second] == [2]


async def test_an_episode_that_was_announced_goes_on_and_nothing_is_kept_where_none_was() -> None:
    with activity.span("generate"):
        assert activity.current() is None
    with activity.recording(uid="outer", session=3, env="math") as outer:
        episode = await play(SlowPolicy("42"), FakeEnv(ROW))
        assert activity.running() == [outer] and outer.session == 3
    assert [s.kind for s in episode.spans] == [s.kind for s in outer.spans]


def test_what_it_waits_for_is_the_oldest_of_the_innermost_spans() -> None:
    timeline = Timeline(uid="a", began=0.0)
    assert timeline.waits_for() is None and timeline.last_end() == 0.0
    step = timeline.begin("step", label="", turn=0, parent=None)
    first = timeline.begin("tool", label="first", turn=0, parent=step)
    second = timeline.begin("tool", label="second", turn=0, parent=step)
    assert timeline.waits_for() is first
    inner = timeline.begin("generate", label="", turn=0, parent=first)
    assert timeline.waits_for() is second, "the first one waits for its sub-agent, which began later"
    timeline.end(second)
    assert timeline.waits_for() is inner
    timeline.end(inner)
    timeline.end(first)
    assert timeline.waits_for() is step


async def test_a_call_that_was_left_behind_is_not_blamed_for_what_follows() -> None:
    release = asyncio.Event()

    async def call() -> None:
        with activity.span("tool", label="hangs", turn=0):
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()
            await release.wait()  # it does not listen to the first cancellation
            with activity.span("browser"):
                await asyncio.sleep(0.01)

    with activity.recording(uid="a") as timeline:
        with activity.span("step", turn=0), pytest.raises(OverrunError):
            await within(call(), 0.01, what="a call")
        assert timeline.waits_for() is None, "nobody waits for the call"
        with activity.span("generate", turn=1):
            for _ in range(3):  # the call goes on, and begins something of its own
                waits_for = timeline.waits_for()
                assert waits_for is not None and waits_for.kind == "generate"
                release.set()
                await asyncio.sleep(0.005)


def test_of_very_many_spans_the_longest_are_kept_in_order() -> None:
    spans = [Span("tool", str(i), i, float(i), i + length) for i, length in enumerate([0.1, 0.5, 0.2, 0.9])]
    assert [s.label for s in activity.longest(spans, 2)] == ["1", "3"]
    assert activity.longest(spans, 4) == tuple(spans)
