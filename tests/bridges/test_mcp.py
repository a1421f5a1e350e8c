"""Tools of real MCP servers, over stdio and over HTTP on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError, EnvError
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Action, Message, Tool, ToolCall, ToolResult
from verl_agentic.tools import mcp_connection
from verl_agentic.tools.mcp_tools import McpTools

SERVER = Path(__file__).parents[1] / "fixtures" / "mcp_server.py"
STDIO: dict[str, Any] = {
    "command": sys.executable,
    "args": [str(SERVER)],
    "call_timeout_s": 120,
    "start_timeout_s": 600,
}


_before: set[int] = set()


@pytest.fixture(scope="module", autouse=True)
def _mcp() -> None:
    pytest.importorskip("mcp")


@pytest.fixture(autouse=True)
def _earlier_tests_may_have_children() -> None:
    _before.clear()
    _before.update(child.pid for child in psutil.Process().children(recursive=True))


def _children() -> int:
    """Returns the number of processes that this test started and that still run."""
    return sum(child.pid not in _before for child in psutil.Process().children(recursive=True))


def shout(text: str) -> str:
    """Returns the text in capitals."""
    return text.upper()


async def _call(tools: list[Tool], tool: str, /, **arguments: Any) -> ToolResult:
    return await next(found for found in tools if found.name == tool).call(arguments)


@contextlib.contextmanager
def _deadline_of(tools: list[Any], seconds: float) -> Iterator[None]:
    """Sets the deadline of calls, which other calls of a test must not have."""
    connection = tools[0]._connection
    before = connection.server
    connection.server = dataclasses.replace(before, call_timeout_s=seconds)
    yield
    connection.server = before


async def _opened(**keys: Any) -> tuple[McpTools, list[Tool]]:
    mcp = McpTools({"fixture": {**STDIO, **keys}})
    return mcp, await mcp.open()


async def _open_and_close(keys: Mapping[str, Any], *, name: str = "fixture") -> None:
    mcp = McpTools({name: keys})
    try:
        await mcp.open()
    finally:
        await mcp.close()


@pytest.fixture
async def http() -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """Address and process of an HTTP server."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    process = await asyncio.create_subprocess_exec(sys.executable, str(SERVER), str(port))
    while process.returncode is None:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            break
        except OSError:
            await asyncio.sleep(0.05)
    yield f"http://127.0.0.1:{port}/mcp", process
    if process.returncode is None:
        process.kill()
    await process.wait()


async def test_schemas_are_the_servers_own_and_its_errors_are_results_for_the_policy() -> None:
    mcp, tools = await _opened()
    schema = next(tool.schema for tool in tools if tool.name == "order")["function"]
    assert schema["description"] == "Orders an item."
    assert schema["parameters"]["properties"] == {"order": {"$ref": "#/$defs/Order"}}
    assert schema["parameters"]["$defs"]["Order"]["properties"]["count"] == {
        "default": 1, "minimum": 1, "title": "Count", "type": "integer",
    }  # fmt: skip
    env = ToolEnv(EnvRow(prompt=(Message("user", "?"),)), [shout])
    env.use_tools([shout, *tools])  # beside an environment's own tools
    calls = (ToolCall("shout", {"text": "a"}), ToolCall("order", {"order": {"item": "pen", "count": 2}}))
    observation = await env.step(Action(turn=0, text="", content="", tool_calls=calls))
    assert [message.content for message in observation.messages] == ["A", "2 x pen"]
    refused = await _call(tools, "order", order={"item": "moon"})
    assert refused.is_error and "the moon is not for sale" in refused.content
    wrong = await _call(tools, "order", order={"item": "pen", "count": 0})
    assert wrong.is_error and "greater than or equal to 1" in wrong.content
    assert await _call(tools, "picture") == ToolResult("a dot\n[image: image/png]")
    await mcp.close()
    assert _children() == 0


@pytest.mark.slow
async def test_a_late_call_is_an_error_for_the_policy_and_a_dead_server_voids_the_episode() -> None:
    mcp, tools = await _opened()
    with _deadline_of(tools, 0.3):
        late = await _call(tools, "wait", seconds=600)
    assert (late.error_kind, late.content) == ("tool_timeout", "Error: no result within 0.3 s")
    assert (await _call(tools, "wait", seconds=0)).content == "waited"
    for _ in range(2):  # the call that ends the server, and the next one
        with pytest.raises(EnvError, match="'fixture'"):
            await _call(tools, "die")
    await mcp.close()
    assert _children() == 0


@pytest.mark.slow
async def test_an_episode_has_a_server_of_its_own_unless_episodes_share_it() -> None:
    shared = [McpTools({"fixture": STDIO}, num_shared=1) for _ in range(2)]
    (own, tools), first, second = await asyncio.gather(_opened(tools=["count"]), *(mcp.open() for mcp in shared))
    assert [(await _call(used, "count")).content for used in (first, second, tools)] == ["1", "2", "1"]
    await own.close()
    await shared[0].close()
    assert (await _call(second, "count")).content == "3" and _children() == 1
    with pytest.raises(EnvError):
        await _call(second, "die")
    assert (await _call(await shared[0].open(), "count")).content == "1"  # the next episode gets another server


@pytest.mark.slow
async def test_a_shared_server_that_hangs_ends_for_all_its_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = await McpTools({"fixture": STDIO}, num_shared=1).open()
    monkeypatch.setattr(mcp_connection, "_ALIVE_S", 60)
    with _deadline_of(tools, 0.3):
        assert (await _call(tools, "wait", seconds=600)).error_kind == "tool_timeout"
    assert (await _call(tools, "count")).content == "1"  # late, but not hung
    monkeypatch.setattr(mcp_connection, "_ALIVE_S", 0.3)
    with _deadline_of(tools, 0.3):
        assert (await _call(tools, "hang", seconds=600)).error_kind == "tool_timeout"
    with pytest.raises(EnvError):
        await _call(tools, "count")


@pytest.mark.slow
async def test_http_servers_get_the_headers_and_their_end_voids_the_episode(http: tuple[str, Any]) -> None:
    url, process = http
    mcp = McpTools({"fixture": {"url": url, "headers": {"x-team": "blue"}}})
    tools = await mcp.open()
    assert (await _call(tools, "header", name="x-team")).content == "blue"
    assert await _call(tools, "order", order={"item": "pen"}) == ToolResult("1 x pen")
    process.kill()
    await process.wait()
    for _ in range(2):
        with pytest.raises(EnvError, match="'fixture'"):
            await asyncio.wait_for(_call(tools, "count"), 60)
    await mcp.close()
    with pytest.raises(EnvError, match="cannot be reached"):
        await McpTools({"fixture": {"url": url}}).open()


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"command": "no-such-program-xyz"}, "'no-such-program-xyz'"),
        ({**STDIO, "tools": ["fly"]}, "'fly'"),
        ({**STDIO, "url": "http://127.0.0.1"}, "set one of them"),
        ({}, "set one of them"),
    ],
)
async def test_settings_that_cannot_work_are_refused(keys: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        await _open_and_close(keys)


def broken_server(schema: object) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(SERVER), "broken", json.dumps(schema)]}


RESULTS: tuple[tuple[list[str], Any, str], ...] = (
    (["a mile"], {"length": "a mile"}, 'a mile\n{"length": "a mile"}'),
    (["ok"], {"rows": [1, 2]}, 'ok\n{"rows": [1, 2]}'),
    ([], {"rows": [1, 2]}, '{"rows": [1, 2]}'),
    (['{ "b": 2,\n"a": 1 }'], {"a": 1, "b": 2}, '{ "b": 2,\n"a": 1 }'),
    (["2 rows", '{"rows":[1,2]}'], {"rows": [1, 2]}, '2 rows\n{"rows":[1,2]}'),
    (['{"a": 1}'], {"a": True}, '{"a": 1}\n{"a": true}'),
    (["3 x pen"], {"result": "3 x pen"}, "3 x pen"),
    (["1", "2"], {"result": [1, 2]}, "1\n2"),
    (["a", "b"], {"result": ["a", "b"]}, "a\nb"),
    (["done"], {"result": 7}, 'done\n{"result": 7}'),
    (["a mile"], None, "a mile"),
)


@pytest.mark.slow
async def test_all_of_a_result_reaches_the_policy_once_whatever_the_servers_own_schema_says() -> None:
    mcp = McpTools({"broken": {**broken_server({"type": "object"}), "start_timeout_s": 60}})
    tools = await mcp.open()  # the listing has no last page
    assert [tool.name for tool in tools] == ["measure"]
    for texts, structured, content in RESULTS:
        result = {"content": [{"type": "text", "text": text} for text in texts]}
        result |= {} if structured is None else {"structuredContent": structured}
        assert await _call(tools, "measure", result=result) == ToolResult(content)
    await mcp.close()


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "schema",
    [
        {},
        [],
        {"type": "object", "properties": {"a": {"type": "string", "required": True}}},
        {"type": "object", "properties": 1},
    ],
)
async def test_tools_that_are_described_wrongly_are_refused_by_name(schema: object) -> None:
    with pytest.raises((ConfigError, EnvError), match=r"(?s)MCP server 'broken'.*fix "):
        await _open_and_close(broken_server(schema), name="broken")


async def test_a_server_that_does_not_start_in_time_is_ended() -> None:
    silent = {"command": "sh", "args": ["-c", "cat >/dev/null"], "start_timeout_s": 0.2}
    mcp = McpTools({"silent": silent})
    with pytest.raises(EnvError, match=r"0\.2 s"):
        await mcp.open()
    await mcp.close()
    assert _children() == 0
