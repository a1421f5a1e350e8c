"""Runs an environment with scripts, for its validation."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from verl_agentic.base.deadlines import OverrunError, within
from verl_agentic.base.env import Env, EnvRow
from verl_agentic.base.errors import EnvError
from verl_agentic.base.tools.plain_schema import list_schemas
from verl_agentic.base.types import Action, Message
from verl_agentic.episode.attempt.attempt import EpisodeSetup
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.codec.codec import Codec, Schema, render_next_action
from verl_agentic.episode.collect import Script, run_episodes, scripted
from verl_agentic.episode.env_package import EnvPackage
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.run_episode import run_episode
from verl_agentic.evaluate.env_validation.adversaries import NULL, NextText
from verl_agentic.evaluate.env_validation.timing import Stopwatch

BURST = 4
"""Number of environments per way to end, in one burst."""
_CONCURRENT = 16
# Large budgets, so that no script reaches one.
_LIMITS = EpisodeLimits(
    max_response_tokens=2_000_000, max_context_tokens=4_000_000, max_turns=512, max_retries=0, episode_timeout_s=600.0
)
_FEW_TURNS = replace(_LIMITS, max_turns=8)
_Run = Callable[[Callable[[int], NextText], Sequence[EnvRow], int], Awaitable[list[Episode]]]
"""Runs rows: a script for each index, the rows, and the number of parallel episodes."""


@dataclass(kw_only=True)
class EnvHarness:
    """An environment, its rows, and a protocol."""

    package: EnvPackage
    rows: list[EnvRow]
    codec: Codec
    tokenizer: Any
    config: Mapping[str, Any]
    """Keyword arguments of `make_env`."""
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    episodes: list[Episode] = field(default_factory=list)
    """All finished episodes."""
    on_episode: Callable[[Episode], None] = lambda episode: None
    """Called as each episode ends."""

    async def start(self, row: EnvRow) -> tuple[tuple[Message, ...], list[Schema]]:
        """Starts an environment, closes it, and returns its prompt and the schemas of its tools.

        Raises:
            EnvError: it takes too long. Exceptions of the environment pass unchanged.
        """
        env = self._make_env(row)
        try:
            messages = await within(env.start(), _LIMITS.start_timeout_s, what="start")
            return tuple(messages), list_schemas(env.tools)
        except OverrunError as cause:
            raise EnvError(f"the environment did not start, got {cause}; make its start faster") from cause
        finally:
            await env.close()

    async def run_solution(self) -> list[Episode]:
        """Runs the solution of every row, one after the other and timed."""
        return await self._run_policies(self._make_solution, self.rows, self.stopwatch.timed(self._make_env), 1)

    async def run(self, begin: Callable[[], NextText], rows: Sequence[EnvRow]) -> list[Episode]:
        """Runs rows with a policy that does not depend on them, for a few turns.

        Arguments that do not fit their schema reach the environment, because a protocol may not check them.
        """
        return await self._run_limited(lambda index: begin(), rows, _CONCURRENT)

    async def run_each(
        self, begins: Sequence[Callable[[], NextText]], rows: Sequence[EnvRow], *, max_turns: int
    ) -> list[Episode]:
        """Runs each row with a policy of its own."""
        limits = replace(_LIMITS, max_turns=max_turns)
        unchecked = cast("Codec", _Unchecked(self.codec))
        return await self._run_policies(
            lambda index: begins[index](), rows, self._make_env, _CONCURRENT, limits=limits, codec=unchecked
        )

    async def run_beginning(self) -> list[Episode]:
        """Runs the first turn of every row's solution, then silence."""
        return await self._run_limited(self._make_beginning, self.rows, _CONCURRENT)

    async def replay_solution(self) -> list[list[Episode]]:
        """Runs the solution of every row four more times."""
        return await self._replay_rows(self._make_solution, self._run_counted)

    async def replay_beginning(self) -> list[list[Episode]]:
        """Runs the first turn of every row's solution four more times."""
        return await self._replay_rows(self._make_beginning, self._run_limited)

    async def replay(self, begin: Callable[[], NextText]) -> list[list[Episode]]:
        """Runs every row four more times with a policy that does not depend on it."""
        return await self._replay_rows(lambda index: begin(), self._run_limited)

    async def _replay_rows(self, script_of: Callable[[int], NextText], run: _Run) -> list[list[Episode]]:
        """Returns the four episodes of each row: beside other rows, twice at once, and alone in the reverse order.

        This finds state that leaks between episodes of one row, between rows, and between siblings.
        """
        count = len(self.rows)
        episodes_by_row: list[list[Episode]] = [[] for _ in range(count)]
        twice = [index for index in range(count) for _ in range(2)]
        for order, max_concurrent in ((range(count), _CONCURRENT), (twice, _CONCURRENT), (range(count)[::-1], 1)):
            rows = [self.rows[index] for index in order]
            episodes = await run(lambda place, order=order: script_of(order[place]), rows, max_concurrent)
            for index, episode in zip(order, episodes, strict=True):
                episodes_by_row[index].append(episode)
        return episodes_by_row

    async def _run_counted(
        self, script_of: Callable[[int], NextText], rows: Sequence[EnvRow], max_concurrent: int
    ) -> list[Episode]:
        return await self._run_policies(script_of, rows, self.stopwatch.counted(self._make_env), max_concurrent)

    async def _run_limited(
        self, script_of: Callable[[int], NextText], rows: Sequence[EnvRow], max_concurrent: int
    ) -> list[Episode]:
        unchecked = cast("Codec", _Unchecked(self.codec))
        return await self._run_policies(
            script_of, rows, self._make_env, max_concurrent, limits=_FEW_TURNS, codec=unchecked
        )

    async def burst(self) -> None:
        """Ends environments in all ways: finished, only started, and cancelled."""
        for number in range(BURST):
            index = number % len(self.rows)
            await self._run_policies(
                lambda _, index=index: self._make_solution(index), [self.rows[index]], self._make_env, 1
            )
            with contextlib.suppress(Exception):  # a failing start is reported elsewhere
                await self.start(self.rows[index])
            await self._cancel_episode(index)

    async def _cancel_episode(self, index: int) -> None:
        """Runs the first turn of the solution, and cancels the episode during the second."""
        is_thinking = asyncio.Event()
        solution = self._make_solution(index)
        texts: list[str] = []

        async def next_text(messages: Sequence[Message]) -> str:
            if texts:
                is_thinking.set()
                await asyncio.Event().wait()
            texts.append(solution(messages))
            return texts[0]

        playing = asyncio.ensure_future(
            run_episode(
                self.rows[index],
                make_env=self._make_env,
                setup=self._make_setup(next_text, _LIMITS, None),
                request_id="cancelled",
            )
        )
        thinking = asyncio.ensure_future(is_thinking.wait())
        await asyncio.wait({playing, thinking}, return_when=asyncio.FIRST_COMPLETED)
        for task in (playing, thinking):
            task.cancel()
        await asyncio.gather(playing, thinking, return_exceptions=True)

    async def _run_policies(
        self,
        policy_of: Callable[[int], NextText],
        rows: Sequence[EnvRow],
        make_env: Callable[[EnvRow], Env],
        max_concurrent: int,
        limits: EpisodeLimits = _LIMITS,
        codec: Codec | None = None,
    ) -> list[Episode]:
        episodes = await run_episodes(
            rows,
            make_env=make_env,
            setup_for=lambda index, row: self._make_setup(policy_of(index), limits, codec),
            max_concurrent=max_concurrent,
            on_episode=self.on_episode,
        )
        self.episodes += episodes
        return episodes

    def _make_setup(self, script: Script, limits: EpisodeLimits, codec: Codec | None) -> EpisodeSetup:
        return scripted(script, codec=codec or self.codec, tokenizer=self.tokenizer, limits=limits)

    def _make_solution(self, index: int) -> NextText:
        if self.package.gold is None:
            return NULL.begin()
        # Asked in the first turn, so that an exception makes this episode void, and no other.
        solution = functools.cache(functools.partial(self.package.gold, self.rows[index]))
        return lambda messages: render_next_action(self.codec, solution()(messages), before=messages)

    def _make_beginning(self, index: int) -> NextText:
        solutions = [self._make_solution(index)]
        return lambda messages: solutions.pop()(messages) if solutions else ""

    def _make_env(self, row: EnvRow) -> Env:
        return self.package.make_env(row, **self.config)


class _Unchecked:
    """A codec that does not check arguments; otherwise it delegates to another codec."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codec, name)

    async def decode_action(self, token_ids: Sequence[int], *, turn: int, tools: Sequence[Schema]) -> Action:
        action = await self._codec.decode_action(token_ids, turn=turn, tools=tools)
        calls = tuple(
            replace(call, error=None, error_kind=None) if call.error_kind == "wrong_arguments" else call
            for call in action.tool_calls
        )
        return replace(action, tool_calls=calls)
