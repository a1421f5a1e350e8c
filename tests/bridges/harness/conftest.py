"""Episodes of agents behind the gateway, with a scripted policy and a real tokenizer."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from verl_agentic.base.env import EnvRow
from verl_agentic.base.types import Message
from verl_agentic.bridges.harness import make_env
from verl_agentic.cpu.testing import tiny_codecs
from verl_agentic.episode.attempt.attempt import EpisodeSetup
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.policies.policy import Completion
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.run_episode import run_episode

LIMITS = EpisodeLimits(max_response_tokens=4_000, max_context_tokens=6_000, max_turns=8, max_retries=0)
ROW = EnvRow(prompt=(Message("user", "What is 6*7?"),), ground_truth="42")
Script = Callable[[Sequence[Message]], Any]
"""Returns a turn: a message or a text; may be a coroutine."""


@dataclass
class CharPolicy:
    """Samples the turns of a script one character per token, as no tokenizer encodes them, and keeps each sample."""

    script: Script
    tokenizer: Any
    codec: Any
    samples: list[tuple[list[int], list[int], list[float]]] = field(default_factory=list)
    """Context, sampled ids and log-probs."""

    async def generate(
        self, prompt_ids: Sequence[int], *, messages: Sequence[Message], max_tokens: int, request_id: str
    ) -> Completion:
        turn: Any = self.script(messages)
        turn = await turn if inspect.isawaitable(turn) else turn
        text = turn if isinstance(turn, str) else self.codec.render_action(turn)
        ids = [token for char in text for token in self.tokenizer.encode(char, add_special_tokens=False)]
        ids = [*ids, self.tokenizer.eos_token_id]
        finish = "length" if len(ids) > max_tokens else "stop"
        ids = ids[:max_tokens]
        log_probs = [-1.0 - len(self.samples) - at / 10_000 for at in range(len(ids))]
        self.samples.append((list(prompt_ids), ids, log_probs))
        return Completion(token_ids=ids, log_probs=log_probs, finish_reason=finish)

    def assert_trained(self, episode: Episode) -> None:
        """Asserts that all samples are trained once, in the context that the policy saw, and nothing else is."""
        trained = []
        for row in episode.trajectories:
            ids, start = row.token_ids, len(row.prompt_ids)
            for at in [at for at, mask in enumerate(row.response_mask) if mask]:
                trained.append((ids[: start + at], row.response_ids[at], row.log_probs[at]))
        sampled = [
            (context + ids[:at], ids[at], log_probs[at])
            for context, ids, log_probs in self.samples
            for at in range(len(ids))
        ]
        assert sorted(trained) == sorted(sampled)


@dataclass
class Stage:
    """Plays agents."""

    tokenizer: Any
    codec: Any

    async def play(
        self,
        agent: Any,
        script: Script,
        *,
        row: EnvRow = ROW,
        score: Any = lambda row, result, transcript: float(result == row.ground_truth),
        limits: EpisodeLimits = LIMITS,
        **options: Any,
    ) -> tuple[Episode, CharPolicy]:
        return await self.run(
            lambda row: make_env(row, agent=agent, score=score, **options), script, row=row, limits=limits
        )

    async def run(
        self, make: Any, script: Script, *, row: EnvRow, limits: EpisodeLimits = LIMITS
    ) -> tuple[Episode, CharPolicy]:
        policy = CharPolicy(script, self.tokenizer, self.codec)
        setup = EpisodeSetup(policy=policy, codec=self.codec, tokenizer=self.tokenizer, limits=limits)
        return await run_episode(row, make_env=make, setup=setup, request_id="r"), policy

    def text(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(list(ids))


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    tokenizer, codecs = tiny_codecs(tmp_path_factory.mktemp("tokenizer"))
    tokenizer.model_max_length = 10**9
    return Stage(tokenizer, codecs["chat"])


@pytest.fixture(scope="session")
def row() -> EnvRow:
    return ROW


@pytest.fixture(scope="session")
def limits() -> EpisodeLimits:
    return LIMITS


@pytest.fixture
async def client() -> Any:
    """A client that keeps its connections: `await client(endpoint, messages, **fields)` returns status and body."""
    async with httpx.AsyncClient(timeout=30, trust_env=False) as http:

        async def ask(endpoint: Any, messages: Any, **fields: Any) -> tuple[int, Any]:
            body = {"model": "m", "messages": messages, **fields}
            answer = await http.post(f"{endpoint.base_url}/chat/completions", json=body)
            return answer.status_code, answer.json()

        async def say(endpoint: Any, messages: Any, **fields: Any) -> Any:
            status, body = await ask(endpoint, messages, **fields)
            assert status == 200, body
            return body["choices"][0]["message"]

        ask.say = say  # type: ignore[attr-defined]
        ask.http = http  # type: ignore[attr-defined]
        yield ask


def numbered() -> Callable[[Any], str]:
    """Returns a script that counts its turns."""
    numbers = itertools.count()
    return lambda messages: f"python {next(numbers)}"


@pytest.fixture
def counting() -> Callable[[Any], str]:
    return numbered()
