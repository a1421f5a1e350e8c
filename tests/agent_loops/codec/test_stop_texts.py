"""A turn that ends in a stop text is whole, also where its budget ends with it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Message, Reward, StopReason, ToolResult
from verl_agentic.episode.attempt.attempt import EpisodeSetup
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.policies.policy import Completion
from verl_agentic.episode.protocols.load_protocol import load_protocol
from verl_agentic.episode.protocols.text_codec import TextCodec
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.run_episode import run_episode

CALLS = {"search_r1": "<search>q</search>", "research": "<search>q</search>", "retool": "<code>print(1)</code>"}
ANSWERS = {"search_r1": "<answer>42</answer>", "research": r"<answer>\boxed{42}</answer>"}
ANSWERS["retool"] = ANSWERS["research"]
CALLS["python_tags"], ANSWERS["python_tags"] = "<python>print(1)</python>", ANSWERS["search_r1"]


class Tool:
    def __init__(self, name: str, argument: str) -> None:
        self.name, self.calls = name, 0
        parameters = {"type": "object", "properties": {argument: {"type": "string"}}}
        self.schema = {"type": "function", "function": {"name": name, "parameters": parameters}}

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        self.calls += 1
        return ToolResult("found")


class Env(ToolEnv):
    async def score(self, transcript: Transcript) -> Reward:
        return Reward(float("42" in transcript.final_answer))


def play(chat: Any, protocol: str, turns: Sequence[str], *, budget_of: str) -> tuple[Episode, Tool]:
    """Plays turns whose budget is as long as one of them; the server says that it was cut there."""
    tokenizer = chat.tokenizer
    codec = TextCodec(load_protocol(protocol), tokenizer=tokenizer, builder=chat.builder)
    left = iter(turns)
    budget = len(tokenizer.encode(budget_of, add_special_tokens=False))

    class Server:
        async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, **_: object) -> Completion:
            ids = list(tokenizer.encode(next(left), add_special_tokens=False))[:max_tokens]
            finish = "length" if len(ids) == max_tokens else "stop"
            return Completion(token_ids=ids, log_probs=[0.0] * len(ids), finish_reason=finish)

    tool = Tool(*(("python", "code") if protocol in ("retool", "python_tags") else ("search", "query")))
    limits = EpisodeLimits(
        max_response_tokens=2_000, max_context_tokens=4_000, max_turns=4, max_turn_tokens=budget, max_retries=0
    )
    chosen = EpisodeSetup(policy=Server(), codec=codec, tokenizer=tokenizer, limits=limits)  # type: ignore[arg-type]
    row = EnvRow(prompt=(Message("user", "?"),))
    episode = asyncio.run(run_episode(row, make_env=lambda r: Env(r, [tool]), setup=chosen, request_id="r"))
    return episode, tool


@pytest.mark.sample(1)
@pytest.mark.parametrize("protocol", sorted(CALLS))
def test_a_call_that_ends_with_its_budget_is_carried_out(chatml: Any, protocol: str) -> None:
    call, answer = f"{'long ' * 9}{CALLS[protocol]}", ANSWERS[protocol]
    episode, tool = play(chatml, protocol, [call, answer], budget_of=call)
    assert tool.calls == 1 and (episode.stop_reason, episode.reward.outcome) == (StopReason.ANSWERED, 1.0)


@pytest.mark.sample(1)
@pytest.mark.parametrize("protocol", sorted(CALLS))
def test_an_answer_that_ends_with_its_budget_is_complete(chatml: Any, protocol: str) -> None:
    answer = f"{'long ' * 9}{ANSWERS[protocol]}"
    episode, _ = play(chatml, protocol, [answer], budget_of=answer)
    assert (episode.stop_reason, episode.reward.outcome) == (StopReason.ANSWERED, 1.0)


@pytest.mark.parametrize("protocol", sorted(CALLS))
def test_a_turn_that_is_cut_before_or_behind_its_stop_text_stays_cut(chatml: Any, protocol: str) -> None:
    call = CALLS[protocol]
    for text, budget_of in ((call, call[:-1]), (f"{call} and so on", f"{call} and")):
        episode, tool = play(chatml, protocol, [text], budget_of=budget_of)
        assert tool.calls == 0 and episode.stop_reason is StopReason.MAX_TOKENS
