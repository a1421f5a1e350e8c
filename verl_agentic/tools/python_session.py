"""The stateful `python` tool: one interpreter per episode, which keeps variables between calls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Protocol

from verl_agentic.base.types import ToolResult
from verl_agentic.sandbox.interface import CommandResult, Limits, Sandbox, SandboxSession
from verl_agentic.tools.python import read_code, render_result

SCHEMA: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": "python",
        "description": "Runs Python code in an interpreter that keeps its variables between calls, and returns what it "
        "prints and the value of a last expression.",
        "parameters": {
            "type": "object",
            "properties": {"code": {"type": "string", "description": "The code to run."}},
            "required": ["code"],
        },
    },
}
RESTARTED = "[the interpreter was restarted: its variables are gone]"


class Leaser(Protocol):
    """A pool that lends sandboxes to episodes."""

    def lease(self) -> AbstractAsyncContextManager[Sandbox]:
        """Lends a fresh sandbox for the block. Raises SandboxError if no sandbox is available."""
        ...


class PythonSessionTool:
    """Runs the argument `code` in one interpreter; the first call leases its sandbox, `close` returns it."""

    name = "python"

    def __init__(self, pool: Leaser, *, limits: Limits) -> None:
        """Makes the tool of one episode.

        Args:
            pool: lends the sandbox.
            limits: `wall_s` is per call, all other limits are per session.
        """
        self._pool = pool
        self._limits = limits
        self._lease = AsyncExitStack()
        self._sandbox: Sandbox | None = None
        self._session: SandboxSession | None = None
        self._turns = asyncio.Lock()

    @property
    def schema(self) -> Mapping[str, Any]:
        """The OpenAI function schema: one required string, `code`."""
        return SCHEMA

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Returns the output, and the error, if any; calls of one turn run one after the other.

        Code that runs too long, or uses too much memory, is killed together with its interpreter; the next call has a
        fresh one, and its result says so.
        """
        code = read_code(arguments)
        if isinstance(code, ToolResult):
            return code
        async with self._turns:
            try:
                result, was_restarted = await self._run_code(code)
            except asyncio.CancelledError:
                self._sandbox = self._session = None  # the sandbox may have ended with the call
                raise
            is_killed = result.timed_out or result.oom or result.exit_code < 0
            if is_killed:
                await self._drop_session(with_sandbox=result.oom)
        text = render_result(result, max_bytes=self._limits.output_bytes)
        return ToolResult(f"{text}\n{RESTARTED}" if is_killed or was_restarted else text, is_error=not result.ok)

    async def close(self) -> None:
        """Ends the interpreter and returns the sandbox."""
        self._sandbox = self._session = None
        await self._lease.aclose()

    async def _run_code(self, code: str) -> tuple[CommandResult, bool]:
        """Runs code; also returns whether earlier code had ended the interpreter, for example with `sys.exit()`."""
        result = await (await self._open_session()).run(code, wall_s=self._limits.wall_s)
        if not _had_ended(result):
            return result, False
        await self._drop_session(with_sandbox=False)
        return await (await self._open_session()).run(code, wall_s=self._limits.wall_s), True

    async def _open_session(self) -> SandboxSession:
        if self._sandbox is None:
            await self._lease.aclose()
            self._sandbox = await self._lease.enter_async_context(self._pool.lease())
        if self._session is None:
            self._session = await self._sandbox.open_session("python", limits=self._limits)
        return self._session

    async def _drop_session(self, *, with_sandbox: bool) -> None:
        session, self._session = self._session, None
        if with_sandbox:
            self._sandbox = None
        elif session is not None:
            await session.close()


def _had_ended(result: CommandResult) -> bool:
    """Returns whether the session had ended before (`sandbox.interface.SandboxSession.run`)."""
    return result.exit_code == -9 and not result.timed_out and result.wall_s == 0.0
