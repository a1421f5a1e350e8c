"""Constraints over calls: a forbidden call is not executed, and the only possible one is written and not trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product

import pytest
from fakes import END, LIMITS, ROW, FakeEnv, decode, encode, episode_setup

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.types import Action, Message, Observation, SegmentKind, StopReason
from verl_agentic.episode.loop_settings import read_loop_settings
from verl_agentic.episode.policies.policy import Completion, ScriptedPolicy
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.run_episode import run_episode
from verl_agentic.methods.ltl import ANSWER, LtlAutomaton

TOOLS = ["search", "python"]


@dataclass
class _Tool:
    name: str

    @property
    def schema(self) -> dict[str, object]:
        return {"type": "function", "function": {"name": self.name, "parameters": {}}}


class Env(FakeEnv):
    """Keeps the calls that it executes."""

    def __init__(self, row: EnvRow) -> None:
        super().__init__(row, tools=[_Tool(name) for name in TOOLS])
        self.ran: list[str] = []

    async def step(self, action: Action) -> Observation:
        if not action.tool_calls:
            return Observation(stop=StopReason.ANSWERED)
        (call,) = action.tool_calls
        if call.error is None:
            self.ran.append(call.name)
        return Observation((Message("tool", call.error or "42"),))


async def play(spec: str, *turns: str) -> tuple[Episode, Env]:
    env = Env(ROW)

    def next_text(messages: Sequence[Message]) -> str:
        return turns[sum(message.role == "assistant" for message in messages)]

    policy = ScriptedPolicy(next_text, encode=encode, end_ids=[END])
    limits = replace(LIMITS, max_response_tokens=2_000, max_context_tokens=3_000, max_turns=len(turns), max_retries=0)
    chosen = episode_setup(policy, limits, constraint=spec)
    return await run_episode(ROW, make_env=lambda row: env, setup=chosen, request_id="r"), env


async def play_masked(
    spec: str, *turns: str, masks: bool = True, kind: type[Choosing] | None = None
) -> tuple[Episode, Env, Choosing]:
    env = Env(ROW)

    def next_text(messages: Sequence[Message]) -> str:
        return turns[sum(message.role == "assistant" for message in messages)]

    policy = (kind or Choosing)(next_text, encode=encode, end_ids=[END])
    limits = replace(LIMITS, max_response_tokens=2_000, max_context_tokens=3_000, max_turns=len(turns), max_retries=0)
    chosen = episode_setup(policy, limits, constraint=spec, constraint_masks=masks)
    episode = await run_episode(ROW, make_env=lambda row: env, setup=chosen, request_id="r")
    return episode, env, policy


def traces(spec: str, *, length: int) -> set[tuple[str, ...]]:
    """Returns the traces up to a length that the automaton allows step by step, and that end with an answer."""
    found, waiting = set(), [((), (automaton := LtlAutomaton(spec, TOOLS)).start)]
    while waiting:
        trace, state = waiting.pop()
        for label in automaton.allowed(state):
            if label == ANSWER:
                found.add((*trace, label))
            elif len(trace) + 1 < length:
                waiting.append(((*trace, label), automaton.after(state, label)))
    return found


@pytest.mark.parametrize(
    ("spec", "holds"),
    [
        ("G(search -> F answer)", lambda t: True),
        ("!answer U search", lambda t: "search" in t),
        ("G(search -> X python)", lambda t: all(b == "python" for a, b in pairwise(t) if a == "search")),
        ("F search & F python", lambda t: {"search", "python"} <= set(t)),
        ("G !python | F search", lambda t: "python" not in t or "search" in t),
        ("search U python", lambda t: "python" in t and set(t[: t.index("python")]) <= {"search"}),
        ("X X answer", lambda t: len(t) == 3),
        ("!(F search)", lambda t: "search" not in t),
    ],
)  # fmt: skip
def test_the_allowed_traces_are_those_in_which_the_specification_holds(spec: str, holds: object) -> None:
    calls = [trace for length in range(4) for trace in product(TOOLS, repeat=length)]
    assert traces(spec, length=4) == {(*t, ANSWER) for t in calls if holds((*t, ANSWER))}  # type: ignore[operator]


async def test_a_forbidden_call_is_not_executed_and_the_policy_is_told_what_is_allowed() -> None:
    episode, env = await play("G !python | !python U search", "call:python", "call:search", "call:python", "42")
    assert env.ran == ["search", "python"] and episode.reward.outcome == 1.0
    told = [message.content for message in episode.messages if message.role == "tool"]
    assert told[0].endswith("what may come next: search, answer")
    assert told[1:] == ["42", "42"]


async def test_an_answer_that_is_not_allowed_yet_does_not_end_the_episode() -> None:
    episode, env = await play("F search & F python", "42", "call:search", "call:python", "42")
    assert env.ran == ["search", "python"] and episode.stop_reason is StopReason.ANSWERED
    assert "what may come next: search, python" in episode.messages[2].content


async def test_the_only_allowed_call_is_written_for_the_policy_and_is_not_trained() -> None:
    episode, env = await play("search & G(search -> X python)", "", "", "42")
    assert env.ran == ["search", "python"] and episode.reward.outcome == 1.0
    (row,) = episode.trajectories
    forced = [s for s in row.segments() if s.kind is SegmentKind.FRAMEWORK]
    assert [decode(row.response_ids[s.start : s.end]) for s in forced] == ["call:search", "call:python"]
    assert not any(any(row.response_mask[s.start : s.end]) for s in forced)
    assert episode.numbers()["forced_tokens"] == len("call:search" + "call:python")


class Choosing(ScriptedPolicy):
    """Prefers the last of the allowed tokens, and keeps what it was asked."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.asked: list[tuple[str, str]] = []

    async def choose(self, prompt_ids: Sequence[int], *, allowed: Sequence[int], request_id: str) -> Completion:
        self.asked.append((decode(prompt_ids)[-5:], decode(allowed)))
        return Completion(token_ids=[allowed[-1]], log_probs=[-1.0], finish_reason="length")


async def test_with_masks_the_engine_chooses_among_the_allowed_calls_and_nothing_of_it_is_trained() -> None:
    episode, env, policy = await play_masked("(search | python) & X answer", "", "42")
    assert policy.asked == [("call:", "ps")]
    assert env.ran == ["search"] and episode.reward.outcome == 1.0
    (row,) = episode.trajectories
    forced = [s for s in row.segments() if s.kind is SegmentKind.FRAMEWORK]
    assert decode(row.response_ids[forced[0].start : forced[0].end]) == "call:search"
    assert not any(any(row.response_mask[s.start : s.end]) for s in forced)


async def test_nothing_is_masked_where_the_answer_is_allowed_or_without_the_setting() -> None:
    _, _, free = await play_masked("G(search -> F answer)", "42")
    _, _, off = await play_masked("X true", "call:search", "42", masks=False)
    assert free.asked == off.asked == []


async def test_an_engine_that_ignores_the_mask_voids_the_episode() -> None:
    class Deaf(Choosing):
        async def choose(self, prompt_ids: Sequence[int], *, allowed: Sequence[int], request_id: str) -> Completion:
            return Completion(token_ids=[0], log_probs=[-1.0], finish_reason="length")

    episode, _, _ = await play_masked("X true", "42", kind=Deaf)
    assert episode.is_void and "allowed_token_ids" in str(episode.error)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("G(search -> ", "a label must follow"),
        ("(search", "bracket"),
        ("search python", "'python'"),
        ("search + python", "unreadable at"),
        ("F serach", "'serach'"),
        ("G search", "must allow some episode that answers"),
    ],
)
def test_a_specification_that_cannot_work_is_refused(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LtlAutomaton(spec, TOOLS)


def test_the_configuration_refuses_what_is_not_ltl() -> None:
    limits = {"max_response_tokens": 9, "max_context_tokens": 9}
    with pytest.raises(ConfigError, match="bracket"):
        read_loop_settings({"constraint": "(search"}, section="agentic", **limits)
