"""The common kind of environment: a chat with tools."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, TypeVar

from verl_agentic.base.deadlines import OverrunError, within
from verl_agentic.base.env import EnvRow, SubAgentRunner, Transcript
from verl_agentic.base.errors import ConfigError, EnvError, boundary, is_infrastructure
from verl_agentic.base.places.error_places import locate_error
from verl_agentic.base.tools.delegate import DelegateTool
from verl_agentic.base.tools.function_tool import to_tool
from verl_agentic.base.tools.schema_check import argument_schema
from verl_agentic.base.types import (
    UNSCORED,
    Action,
    ColumnArguments,
    Message,
    Observation,
    Reward,
    StopReason,
    Tool,
    ToolCall,
    ToolResult,
)

T = TypeVar("T")
logger = logging.getLogger(__name__)
_SHOWN_CHARS = 300
_raised: set[tuple[str, str]] = set()
"""Tool and exception of what was logged already; a policy may raise it thousands of times."""
call_watch: ContextVar[Callable[[ToolCall], AbstractContextManager[None]] | None] = ContextVar(
    "call_watch", default=None
)
"""Makes the context in which `ToolEnv` answers a call: who plays the episode sees which calls are running."""


class ToolEnv:
    """An environment that is a chat with tools: calls are answered, a turn without a call is the answer.

    A subclass gives `score`, unless a rubric does, and `start` or `close` where it keeps state.
    """

    is_done = False
    """Whether the environment has reached its end; a tool sets it. The turn then ends the episode with `ENV_DONE`."""

    def __init__(
        self,
        row: EnvRow,
        tools: Sequence[Tool | Callable[..., Any]],
        *,
        max_parallel_calls: int = 4,
        tool_timeout_s: float = 30.0,
    ) -> None:
        """Makes the environment of a row.

        Args:
            row: the row. `extra["tool_selection"]`, if not empty, names the tools that it gets.
            tools: tools and functions; a function or bound method becomes a tool as with the decorator `tool`.
            max_parallel_calls: calls that run at the same time.
            tool_timeout_s: deadline of one call in seconds, unless the tool has a `timeout_s` of its own.

        Raises:
            ConfigError: the row selects a tool that is not among `tools`, two tools have one name, or a function cannot
                be a tool.
        """
        self.row = row
        self._run_sub_agent: SubAgentRunner | None = None
        self.use_tools(tools)
        self._slots = asyncio.Semaphore(max_parallel_calls)
        self._tool_timeout_s = tool_timeout_s

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools, in the order they were given."""
        return tuple(self._tools.values())

    def use_tools(self, tools: Sequence[Tool | Callable[..., Any]]) -> None:
        """Replaces the tools. Call it in `start` where tools need the environment, or in `step`: the loop announces
        tools that change in mid-episode to the policy.

        Raises:
            ConfigError: as in `ToolEnv`.
        """
        all_tools = [to_tool(tool) for tool in tools]
        self._tools = {tool.name: tool for tool in _select_tools(all_tools, self.row.extra.get("tool_selection"))}
        if any(
            isinstance(call.arguments, ColumnArguments) for message in self.row.prompt for call in message.tool_calls
        ):
            self.row = replace(self.row, prompt=tuple(_without_filled_nulls(m, all_tools) for m in self.row.prompt))
        if self._run_sub_agent is not None:
            self.use_sub_agents(self._run_sub_agent)

    def use_sub_agents(self, run: SubAgentRunner) -> None:
        """Gives `run` to the tools that delegate."""
        self._run_sub_agent = run
        for tool in self._tools.values():
            if isinstance(tool, DelegateTool):
                tool.use(run)

    async def start(self) -> tuple[Message, ...]:
        """Returns the prompt of the row."""
        return self.row.prompt

    async def step(self, action: Action) -> Observation:
        """Runs the calls of the turn side by side and answers them in order; no call ends the episode."""
        if not action.tool_calls:
            return Observation(stop=StopReason.ANSWERED)
        answers = await run_all(self._timed_answer(call) for call in action.tool_calls)
        messages = tuple(
            Message(
                "tool",
                result.content,
                name=call.name,
                call_id=call.call_id,
                is_error=result.is_error,
                error_kind=result.error_kind,
                error_place=result.error_place,
                elapsed_s=elapsed_s,
            )
            for call, (result, elapsed_s) in zip(action.tool_calls, answers, strict=True)
        )
        stop = StopReason.ENV_DONE if self.is_done else None
        return Observation(messages=messages, stop=stop, info=_count_results([result for result, _ in answers]))

    async def score(self, transcript: Transcript) -> Reward:
        """Leaves the outcome to a rubric, unless a subclass knows it."""
        return UNSCORED

    async def close(self) -> None:
        """Nothing to release unless a subclass keeps something."""

    async def _timed_answer(self, call: ToolCall) -> tuple[ToolResult, float]:
        watch, started = call_watch.get(), time.monotonic()
        with nullcontext() if watch is None else watch(call):
            return await self._answer_call(call), time.monotonic() - started

    async def _answer_call(self, call: ToolCall) -> ToolResult:
        if call.error is not None:
            return ToolResult(f"Error: {call.error}", is_error=True, error_kind=call.error_kind)
        tool = self._tools.get(call.name)
        if tool is None:
            text = f"Error: unknown tool {call.name!r}; known tools: {sorted(self._tools)}"
            return ToolResult(text, is_error=True, error_kind="unknown_tool")
        timeout_s = getattr(tool, "timeout_s", self._tool_timeout_s)
        async with self._slots:
            try:
                return await within(_run_tool(tool, call), timeout_s, what=f"tool {call.name!r}")
            except OverrunError:
                text = f"Error: no result within {timeout_s:g} s"
                return ToolResult(text, is_error=True, error_kind="tool_timeout")


def _without_filled_nulls(message: Message, tools: Sequence[Tool]) -> Message:
    """Returns a message whose calls lack the nulls that Arrow may have filled in and that their tool refuses."""
    schemas = {tool.name: (tool.schema or {}).get("function", {}).get("parameters") or {} for tool in tools}
    calls = tuple(
        replace(call, arguments=argument_schema(schemas[call.name]).without_nulls(call.arguments))
        if isinstance(call.arguments, ColumnArguments) and call.name in schemas
        else call
        for call in message.tool_calls
    )
    return replace(message, tool_calls=calls)


def _select_tools(tools: Sequence[Tool], names: Sequence[str] | None) -> list[Tool]:
    counts = Counter(tool.name for tool in tools)
    if twice := sorted(name for name, count in counts.items() if count > 1):
        raise ConfigError(f"tools of an environment must have different names, got {twice} twice; rename one")
    unknown = sorted(set(names or ()) - set(counts))
    if unknown and tools:  # an environment without tools may get them later
        tool_names = sorted(tool.name for tool in tools)
        raise ConfigError(
            f"the row selects tools that the environment does not have, got {unknown}; it has {tool_names}"
        )
    return [tool for tool in tools if not names or tool.name in names]


async def run_all(answers: Iterable[Awaitable[T]]) -> list[T]:
    """Returns all results in order. If one fails, the others are ended before the exception is raised."""
    first, *others = answers
    if not others:
        return [await first]
    tasks = [asyncio.ensure_future(answer) for answer in (first, *others)]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _count_results(results: Sequence[ToolResult]) -> dict[str, float]:
    kinds = Counter(f"call_error/{result.error_kind}" for result in results if result.error_kind is not None)
    failed = sum(result.is_error for result in results)
    return {"tool_calls": float(len(results)), "tool_errors": float(failed), **kinds}


async def _run_tool(tool: Tool, call: ToolCall) -> ToolResult:
    """Returns the result of a call; an exception that the arguments may have caused is an error for the policy."""
    with boundary(EnvError, f"tool {call.name!r}"):
        try:
            result: Any = await tool.call(call.arguments)
            if isinstance(result, ToolResult) and isinstance(result.content, str):
                return result
            raise TypeError(f"a tool must return a ToolResult with text, got {type(result).__name__}")
        except (Exception, SystemExit) as cause:
            if is_infrastructure(cause):
                raise
            kind, place = type(cause).__name__, locate_error(cause)
            if (call.name, kind) not in _raised:
                _raised.add((call.name, kind))
                logger.warning(
                    "tool %r raised %s (%s), which the policy is told; told once",
                    *(call.name, kind, place or "in an installed package"),
                    exc_info=True,
                )
            if isinstance(cause, TimeoutError):
                text = "Error: no result in time"
                return ToolResult(text, is_error=True, error_kind="tool_timeout", error_place=place)
            text = f"Error: {call.name!r} failed on these arguments: {kind}: {_shorten_message(cause)}"
            return ToolResult(text, is_error=True, error_kind="tool_raised", error_place=place)


def _shorten_message(error: BaseException) -> str:
    try:
        return str(error)[:_SHOWN_CHARS]
    except Exception:  # foreign code, and only words
        return "no message"
