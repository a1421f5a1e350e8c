"""A connection to an MCP server, over stdio or streamable HTTP.

The SDK's cancel scopes must be left by the task that entered them, and a broken HTTP transport cancels that task. So a
task of the connection's own holds the SDK's client, and calls of episodes run beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeVar

from verl_agentic.base.env_card import needs_extra
from verl_agentic.base.errors import AgenticError, ConfigError, DataError, EnvError
from verl_agentic.base.settings import Settings, setting
from verl_agentic.base.tools.schema_check import argument_schema
from verl_agentic.base.types import ToolResult

T = TypeVar("T")
_ALIVE_S = 5.0  # deadline of a server that must show that it is alive
_SLACK_S = 2 * _ALIVE_S  # the connection's deadline has the better error, so the deadline of the tool is later
_SHOWN_BYTES = 500
_WRONG_ARGUMENTS, _CONNECTION_CLOSED, _TIMEOUT = -32602, -32000, -32001  # codes of JSON-RPC and of the SDK


class McpServer(Settings):
    """An MCP server, with the keys of the usual `mcpServers` files."""

    command: str = ""
    """Program of a stdio server."""
    args: Sequence[str] = ()
    """Arguments of the program."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the program, in addition to a few that are safe to inherit (`PATH`, `HOME`)."""
    cwd: str | None = None
    """Working directory of the program."""
    url: str = ""
    """Address of a streamable HTTP server."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """HTTP headers of every request."""
    tools: Sequence[str] = ()
    """Names of the tools that the policy gets. Empty: all of them."""
    start_timeout_s: float = setting(120.0, above=0)
    """Deadline of the connection, in seconds."""
    call_timeout_s: float = setting(30.0, above=0)
    """Deadline of a call, in seconds. A call that takes longer is an error for the policy."""

    def check_together(self) -> None:
        if bool(self.command) == bool(self.url):
            raise ConfigError(f"command or url must be set, got {self.command!r} and {self.url!r}; set one of them")


class McpConnection:
    """An open connection to one server; `close` it in any task."""

    def __init__(self, name: str, server: McpServer, *, is_shared: bool = False) -> None:
        """Begins to connect; `list_tools` waits for it.

        Args:
            name: of the server, for errors.
            server: its settings.
            is_shared: whether several episodes use the connection. If a call is late and the server does not answer
                anything else, the connection ends, so that their calls do not fail one by one.

        Raises:
            MissingDependencyError: the SDK is not installed.
        """
        with needs_extra("mcp", what=f"MCP server {name!r}"):
            import mcp  # noqa: F401  # before the task that needs it
        self.name, self.server, self._is_shared = name, server, is_shared
        self._client: Any = None
        self._last_words = ""
        self._is_open, self._is_closing = asyncio.Event(), asyncio.Event()
        self._task = asyncio.create_task(self._hold_open(), name=f"mcp server {name}")
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())  # else asyncio prints it

    @property
    def is_alive(self) -> bool:
        """True until something closes or breaks the connection."""
        return not (self._is_closing.is_set() or self._task.done())

    async def list_tools(self) -> list[McpTool]:
        """Returns the server's tools as it describes them now.

        Raises:
            ConfigError: the program does not exist, the server lacks a tool that the settings name, or the arguments
                of a tool have no JSON schema.
            EnvError: the server cannot be started or reached, is dead, too slow, or answers against the protocol.
        """
        try:
            tools_by_name = {
                tool.name: tool for tool in await self._await_result(self._list_tools(), self.server.start_timeout_s)
            }
        except TimeoutError as cause:
            raise EnvError(
                f"MCP server {self.name!r} did not list its tools within {self.server.start_timeout_s:g} s; raise "
                "start_timeout_s, or fix it"
            ) from cause
        if unknown := sorted(set(self.server.tools) - set(tools_by_name)):
            raise ConfigError(f"MCP server {self.name!r} has no tools {unknown}; it has {sorted(tools_by_name)}")
        tools = [tool for name, tool in tools_by_name.items() if name in (self.server.tools or tools_by_name)]
        for tool in tools:
            try:
                argument_schema(tool.schema["function"]["parameters"])
            except DataError as cause:
                raise ConfigError(
                    f"tool {tool.name!r} of MCP server {self.name!r}: {cause}, or name the other tools in `tools`"
                ) from cause
        return tools

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Calls a tool. Its errors, and those of the protocol, are results for the policy.

        Raises:
            EnvError: the server is dead or cannot be reached, or answers against the protocol.
        """
        from mcp.shared.exceptions import MCPError

        timeout_s = self.server.call_timeout_s
        try:
            result = await self._await_result(self._client.call_tool(tool, dict(arguments)), timeout_s)
        except TimeoutError:
            await self._end_if_hung()
            return ToolResult(f"Error: no result within {timeout_s:g} s", is_error=True, error_kind="tool_timeout")
        except MCPError as cause:
            kind = "wrong_arguments" if cause.code == _WRONG_ARGUMENTS else "tool_raised"
            return ToolResult(f"Error: {cause}", is_error=True, error_kind=kind)
        return ToolResult(_text_of(result), is_error=result.is_error)

    async def close(self) -> None:
        """Ends the connection, and the process of a stdio server."""
        self._is_closing.set()
        if not self._is_open.is_set():
            self._task.cancel()
        await asyncio.wait({self._task})

    async def _hold_open(self) -> None:
        from mcp import Client

        with tempfile.TemporaryFile() as log:
            try:
                async with self._open_transport(log) as transport, Client(transport, cache=None) as self._client:
                    # The SDK drops a result that does not fit the tool's own output schema; the policy may use it.
                    self._client.session.validate_tool_result = _accept_result
                    self._is_open.set()
                    await self._is_closing.wait()
            finally:
                log.seek(max(0, log.seek(0, 2) - _SHOWN_BYTES))
                self._last_words = log.read().decode(errors="replace").strip()

    @contextlib.asynccontextmanager
    async def _open_transport(self, log: Any) -> AsyncIterator[Any]:
        import httpx2
        from mcp.client.stdio import StdioServerParameters, stdio_client
        from mcp.client.streamable_http import streamable_http_client

        server = self.server
        if server.command:
            program = StdioServerParameters(
                command=server.command, args=list(server.args), env=dict(server.env), cwd=server.cwd
            )
            yield stdio_client(program, errlog=log)
            return
        deadlines = httpx2.Timeout(None, connect=server.start_timeout_s)  # calls have deadlines of their own
        async with httpx2.AsyncClient(headers=dict(server.headers), timeout=deadlines) as http:
            yield streamable_http_client(server.url, http_client=http)

    async def _list_tools(self) -> list[McpTool]:
        await self._is_open.wait()
        tools, cursor, cursors = [], None, set()
        while cursor not in cursors:  # some servers answer the last page with its own cursor
            cursors.add(cursor)
            page = await self._client.list_tools(cursor=cursor)
            tools += [McpTool(self, tool) for tool in page.tools]
            cursor = page.next_cursor or None
        return tools

    async def _end_if_hung(self) -> None:
        if self._is_shared:
            try:
                await self._await_result(self._list_tools(), _ALIVE_S)
            except (EnvError, TimeoutError):
                self._is_closing.set()

    async def _await_result(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Returns the result of work, unless the connection ends first.

        Raises:
            TimeoutError: neither has happened within `timeout_s`.
            EnvError: the connection has ended, or the server answers against the protocol.
            MCPError: the server refused.
        """
        from mcp.shared.exceptions import MCPError
        from pydantic import ValidationError

        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self._task}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if task.done() and not self._task.done():
                return task.result()
        except MCPError as cause:
            if cause.code == _TIMEOUT:
                raise TimeoutError(str(cause)) from cause
            if cause.code != _CONNECTION_CLOSED:
                raise
            self._is_closing.set()
        except (ValidationError, RuntimeError) as cause:
            raise EnvError(f"MCP server {self.name!r} answers against the protocol, got {cause}; fix it") from cause
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self.is_alive:
            raise TimeoutError(f"no answer within {timeout_s:g} s")
        raise await self._explain_death()

    async def _explain_death(self) -> AgenticError:
        """Returns the error of a connection that has ended."""
        await asyncio.wait({self._task})
        cause: Any = None if self._task.cancelled() else self._task.exception()
        while hasattr(cause, "exceptions"):  # a group, which Python 3.10 does not have
            cause = cause.exceptions[0]
        if isinstance(cause, FileNotFoundError) and not self._is_open.is_set():
            return ConfigError(f"MCP server {self.name!r}: no program {self.server.command!r}, got {cause}; install it")
        error = EnvError(
            f"MCP server {self.name!r} ({self.server.command or self.server.url}) has ended or cannot be reached, got "
            f"{self._last_words or repr(cause)}; run it by hand to see why"
        )
        error.__cause__ = cause
        return error


class McpTool:
    """A tool of an MCP server, with the schema that it lists."""

    def __init__(self, connection: McpConnection, tool: Any) -> None:
        self.name: str = tool.name
        self.schema: Mapping[str, Any] = {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description or "", "parameters": tool.input_schema},
        }
        self.timeout_s = connection.server.call_timeout_s + _SLACK_S
        self._connection = connection

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """See `McpConnection.call`."""
        return await self._connection.call(self.name, arguments)


async def _accept_result(name: str, result: Any) -> None:
    """Stands in for the SDK's check of a result."""


def _text_of(result: Any) -> str:
    """Returns the texts of a result, then its structured content unless a text is that JSON; other content is named."""
    parts = [_format_block(block) for block in result.content]
    structured = result.structured_content
    if structured is not None and not _is_repetition(parts, structured):
        parts.append(json.dumps(structured, ensure_ascii=False))
    return "\n".join(parts)


def _is_repetition(texts: Sequence[str], structured: Any) -> bool:
    """Returns whether texts are the JSON of structured content, or of the value that a Python server wraps in it."""
    values = [structured, *(structured.values() if structured.keys() == {"result"} else ())]
    expected = {json.dumps(value, sort_keys=True) for value in values}
    readings = [*texts, list(texts), "\n".join(texts)]
    for text in (*texts, "\n".join(texts)):
        with contextlib.suppress(ValueError, RecursionError):
            readings.append(json.loads(text))
    with contextlib.suppress(ValueError, RecursionError):
        readings.append([json.loads(text) for text in texts])
    return any(json.dumps(reading, sort_keys=True) in expected for reading in readings)


def _format_block(block: Any) -> str:
    if block.type == "text":
        return block.text
    if block.type == "resource" and hasattr(block.resource, "text"):
        return block.resource.text
    if block.type == "resource_link":
        return f"[{block.name}: {block.uri}]"
    return f"[{block.type}: {getattr(block, 'mime_type', None) or 'no text'}]"
