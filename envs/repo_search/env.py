"""The environment `repo_search`: find files and lines of a repository in a few turns of parallel searches."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from verl_agentic import (
    Action,
    ConfigError,
    EnvRow,
    Message,
    Observation,
    Reward,
    StopReason,
    ToolEnv,
    Transcript,
    in_thread,
)
from verl_agentic.graders.components.retrieval import graded_answer
from verl_agentic.sandbox.interface import Command, CommandResult, Limits, Sandbox, Tree
from verl_agentic.sandbox.pools.pool_owner import PoolOwner, pool_of
from verl_agentic.sandbox.pools.sandbox_pool import PoolConfig
from verl_agentic.tools.repository_search import INSTRUCTIONS, RepositorySearch

from .trees import tree_of

MAX_TURNS, MAX_CALLS = 4, 8
"""Limits of the published agent."""
FOLDER = "repository"
_SESSIONS = PoolConfig(size=256, warm=0)
_LIMITS = Limits(output_bytes=200_000)
_WAIT_S = 60.0  # the sandbox ends a search itself
_TOO_MANY = "at most {count} calls may stand in one turn; this one was not carried out"
_LAST_TURN = "\n[Your next turn is the last one: answer with files and lines.]"


class RepoSearchEnv(ToolEnv):
    """A repository that does not change, and the tools `grep`, `glob` and `read`."""

    def __init__(self, row: EnvRow, *, pool: Any, limits: Limits, max_turns: int, max_calls: int, beta: float) -> None:
        self._pool, self._limits = pool, limits
        self._max_turns, self._max_calls, self._beta = max_turns, max_calls, beta
        self._turns = 0
        self._lease = AsyncExitStack()
        self._sandbox: Sandbox | None = None
        tools = RepositorySearch(self._run_search).tools
        # The sandbox runs one program at a time, and a call's deadline must not count the wait.
        super().__init__(row, tools, max_parallel_calls=1, tool_timeout_s=limits.wall_s + _WAIT_S)

    async def start(self) -> tuple[Message, ...]:
        """Makes the sandbox with the repository and returns the prompt.

        Raises:
            DataError: this machine does not have the row's repository.
        """
        tree = Tree(source=await in_thread(lambda: tree_of(self.row)), at=FOLDER, read_only=True)
        self._sandbox = await self._lease.enter_async_context(self._pool.lease(trees=[tree]))
        return prompt_of(self.row.extra["query"], max_turns=self._max_turns, max_calls=self._max_calls)

    async def step(self, action: Action) -> Observation:
        """Runs the calls of a turn. Calls beyond the limit get an error, and the last turn ends the episode."""
        self._turns += 1
        calls = tuple(
            call
            if number < self._max_calls
            else replace(call, error=_TOO_MANY.format(count=self._max_calls), error_kind="too_many")
            for number, call in enumerate(action.tool_calls)
        )
        observation = await super().step(replace(action, tool_calls=calls))
        turns_left = self._max_turns - self._turns
        if observation.stop is None and turns_left <= 0:
            return replace(observation, stop=StopReason.MAX_TURNS)
        return _with_last_notice(observation) if observation.stop is None and turns_left == 1 else observation

    async def score(self, transcript: Transcript) -> Reward:
        """Returns the mean of the F-beta of files and of lines (`retrieval`); 0 without a complete answer."""
        if transcript.stop_reason is not StopReason.ANSWERED:
            return Reward(0.0)
        graded = graded_answer(transcript.final_answer, json.loads(self.row.ground_truth), beta=self._beta)
        return Reward(graded.value or 0.0, info=dict(graded.info))

    async def close(self) -> None:
        """Ends the sandbox."""
        self._sandbox = None
        await self._lease.aclose()

    async def _run_search(self, script: str, arguments: Any) -> CommandResult:
        assert self._sandbox is not None  # no call before `start`
        argv = ["bash", "-c", f"cd {FOLDER} || exit\n{script}", "search", *arguments]
        return await self._sandbox.run(Command(argv=argv), limits=self._limits)


def make_env(
    row: EnvRow,
    *,
    max_turns: int = MAX_TURNS,
    max_calls: int = MAX_CALLS,
    beta: float = 0.5,
    search_timeout_s: float = 10.0,
    sandbox: str = "auto",
    at_least: str | None = None,
    pool: PoolOwner = "process",
) -> RepoSearchEnv:
    """Returns the environment of one episode.

    Args:
        row: `extra` names the repository (`trees.tree_of`); `ground_truth` is JSON text of `{path: [[first, last]]}`.
        max_turns: turns of an episode, with the answer.
        max_calls: calls of a turn; others get an error.
        beta: weight of recall against precision in the outcome.
        search_timeout_s: wall time of one call, in seconds.
        sandbox: backend: `auto`, `namespaces`, `docker` or `landlock`; `local` for trusted models only.
        at_least: weakest isolation that is allowed; by default `landlock` with `auto`.
        pool: `process` for a pool per process, `node` for one pool per node.

    Raises:
        ConfigError: an option is out of its range.
    """
    if max_turns < 1 or max_calls < 1 or not beta > 0:
        raise ConfigError(
            f"max_turns and max_calls must be at least 1 and beta above 0, got {max_turns}, {max_calls} and {beta}"
        )
    boxes = pool_of(pool, sandbox, at_least=at_least, config=_SESSIONS)
    limits = replace(_LIMITS, wall_s=search_timeout_s)
    return RepoSearchEnv(row, pool=boxes, limits=limits, max_turns=max_turns, max_calls=max_calls, beta=beta)


def prompt_of(query: str, *, max_turns: int = MAX_TURNS, max_calls: int = MAX_CALLS) -> tuple[Message, ...]:
    """Returns the prompt of a question about a repository."""
    return Message("system", INSTRUCTIONS.format(turns=max_turns, calls=max_calls)), Message("user", query)


def _with_last_notice(observation: Observation) -> Observation:
    *before, last = observation.messages
    return replace(observation, messages=(*before, replace(last, content=last.content + _LAST_TURN)))
