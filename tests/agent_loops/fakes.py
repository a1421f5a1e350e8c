"""A codec of single characters, and scripted environments: what the loop's tests are played with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.types import Action, Message, Observation, Reward, StopReason, ToolCall
from verl_agentic.episode.attempt.attempt import EpisodeSetup
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.codec.codec import ContextTokens, Schema
from verl_agentic.episode.policies.policy import Policy

END = ord("$")
ROW = EnvRow(prompt=(Message("user", "question"),), ground_truth="42")
LIMITS = EpisodeLimits(max_response_tokens=200, max_context_tokens=300, max_turns=4, retry_wait_s=0.01)


def encode(text: str) -> list[int]:
    return [ord(c) for c in text]


def decode(ids: Sequence[int]) -> str:
    return "".join(map(chr, ids))


class CharTokenizer:
    """One token per character."""

    eos_token_id = 7

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return encode(text)

    def decode(self, token_ids: Sequence[int], *, clean_up_tokenization_spaces: bool = True) -> str:
        return decode(token_ids)


class CharCodec:
    """One token per character; `$` ends a turn, `call:x` is a call of tool `x`."""

    stop_token_ids = ()
    stop_texts = ()

    def render_action(self, message: Message) -> str:
        return f"call:{message.tool_calls[0].name}" if message.tool_calls else message.content

    def call_prefix(self, tool: str) -> str:
        return f"call:{tool}"

    async def encode_prompt(self, messages: Sequence[Message], tools: Sequence[Schema]) -> list[int]:
        return encode("".join(f"<{m.role}>{m.content}" for m in messages) + "<assistant>")

    async def encode_context(
        self, previous: Sequence[Message], new: Sequence[Message], *, stream: Sequence[int], tools: Sequence[Schema]
    ) -> ContextTokens:
        end = "" if list(stream)[-1] == END else "$"  # a turn that a budget has cut
        return ContextTokens(0, encode(end + "\n" + "".join(f"<{m.role}>{m.content}" for m in new) + "<assistant>"))

    def announce_tools(self, tools: Sequence[Schema], *, added: Sequence[Schema]) -> str:
        return ",".join(schema["function"]["name"] for schema in added)

    async def decode_action(self, token_ids: Sequence[int], *, turn: int, tools: Sequence[Schema]) -> Action:
        text = decode(token_ids)
        body = text.rstrip("$")
        calls = (ToolCall(body.removeprefix("call:"), {}),) if body.startswith("call:") else ()
        return Action(turn=turn, text=text, content="" if calls else body, tool_calls=calls)

    def untrained_spans(self, token_ids: Sequence[int]) -> Sequence[tuple[int, int]]:
        return ()


def episode_setup(policy: Policy, limits: EpisodeLimits = LIMITS, **options: Any) -> EpisodeSetup:
    return EpisodeSetup(policy=policy, codec=CharCodec(), tokenizer=CharTokenizer(), limits=limits, **options)


@dataclass
class FakeEnv:
    """Answers a call with `result`; a turn without a call is the answer, right when it says 42."""

    row: EnvRow
    step_hook: Callable[[Action], object] | None = None
    closed: int = 0
    scored: int = 0
    turn_reward: float = 0.0
    tools: Sequence[object] = ()
    transcript: Transcript | None = None
    hang_on_close: bool = False
    started: int = field(default=0)

    async def start(self) -> tuple[Message, ...]:
        self.started += 1
        return self.row.prompt

    async def step(self, action: Action) -> Observation:
        if self.step_hook is not None:
            outcome = self.step_hook(action)
            if asyncio.iscoroutine(outcome):
                await outcome
        if not action.tool_calls:
            return Observation(stop=StopReason.ANSWERED, reward=self.turn_reward)
        return Observation((Message("tool", "42"),), reward=self.turn_reward, info={"tool_calls": 1})

    async def score(self, transcript: Transcript) -> Reward:
        self.scored += 1
        self.transcript = transcript
        return Reward(float("42" in transcript.final_answer))

    async def close(self) -> None:
        self.closed += 1
