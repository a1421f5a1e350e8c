"""The sandboxes of a group share a network and nothing else, and reach nothing outside of the group."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.base.errors import ConfigError, SandboxUnavailableError
from verl_agentic.sandbox.interface import Command, CommandResult, Limits, Sandbox, Tree
from verl_agentic.sandbox.pools.sandbox_group import sandbox_group

LIMITS = Limits(wall_s=20.0, network=True)
SERVE = """
import socket, threading
server = socket.create_server(("service", 8080))
def answer():
    while True:
        connection, address = server.accept()
        connection.sendall(open("page.txt", "rb").read())
        connection.close()
threading.Thread(target=answer, daemon=True).start()
print("ready")
"""
FETCH = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5) as connection:
        print(connection.recv(100).decode())
except OSError as error:
    print(type(error).__name__)
"""


@pytest.fixture(params=["namespaces", pytest.param("docker", marks=pytest.mark.slow)])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Arguments of a group for each backend; skips docker without an engine."""
    if request.param == "docker":
        request.getfixturevalue("api")
        return {"backend": "docker", "image": request.getfixturevalue("docker_image")}
    return {"backend": "namespaces"}


@contextlib.asynccontextmanager
async def group(options: dict[str, Any], **more: Any) -> AsyncIterator[Mapping[str, Sandbox]]:
    try:
        async with sandbox_group(("compiler", "service", "scanner"), **options, **more) as sandboxes:
            yield sandboxes
    except SandboxUnavailableError as reason:
        pytest.skip(str(reason))


async def fetch(sandbox: Sandbox, host: str, port: int = 8080, *, limits: Limits = LIMITS) -> str:
    command = Command(argv=["python", "fetch.py", host, str(port)], files={"fetch.py": FETCH.encode()})
    result = await sandbox.run(command, limits=limits)
    assert result.ok, result.stderr
    return result.stdout.strip()


async def serve(sandbox: Sandbox) -> None:
    session = await sandbox.open_session("python", limits=LIMITS)
    assert (await session.run(SERVE, wall_s=10.0)).stdout == "ready\n"


async def test_a_file_of_one_sandbox_is_served_by_another_and_read_by_a_third(options: dict[str, Any]) -> None:
    async with group(options) as sandboxes:
        build = Command(code="open('page.txt', 'w').write('made by the compiler')", outputs=["page.txt"])
        built: CommandResult = await sandboxes["compiler"].run(build, limits=LIMITS)
        await sandboxes["service"].put_tree(built.files)
        assert await fetch(sandboxes["scanner"], "service") == "ConnectionRefusedError"
        await serve(sandboxes["service"])
        assert await fetch(sandboxes["scanner"], "service") == "made by the compiler"
        assert await fetch(sandboxes["scanner"], "compiler") == "ConnectionRefusedError"
        look = Command(code="import os; print(os.path.exists('page.txt'))")
        assert (await sandboxes["scanner"].run(look, limits=LIMITS)).stdout == "False\n"


async def test_code_without_the_network_does_not_reach_the_service(options: dict[str, Any]) -> None:
    async with group(options) as sandboxes:
        await sandboxes["service"].put_tree({"page.txt": b"x"})
        await serve(sandboxes["service"])
        assert await fetch(sandboxes["scanner"], "service", limits=Limits(wall_s=20.0)) == "PermissionError"


async def test_groups_do_not_reach_each_other_or_this_machine(options: dict[str, Any]) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"host")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, group(options) as first, group(options) as second:
        await first["service"].put_tree({"page.txt": b"first"})
        await serve(first["service"])
        assert await fetch(first["scanner"], "service") == "first"
        assert await fetch(second["scanner"], "service") == "ConnectionRefusedError"
        assert await fetch(first["scanner"], "127.0.0.1", port) == "ConnectionRefusedError"
        assert await fetch(first["scanner"], "10.0.0.1", 80) == "OSError"


async def test_each_sandbox_begins_with_its_own_trees(options: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    async with group(options, trees={"scanner": [Tree(source=tmp_path, at="data")]}) as sandboxes:
        look = Command(code="import os; print(os.listdir('.'))")
        texts = {name: (await sandbox.run(look, limits=LIMITS)).stdout.strip() for name, sandbox in sandboxes.items()}
    assert texts == {"compiler": "[]", "service": "[]", "scanner": "['data']"}


@pytest.mark.slow
async def test_a_container_that_is_replaced_is_in_the_network(api: Any, docker_image: str) -> None:
    async with group({"backend": "docker", "image": docker_image}) as sandboxes:
        await sandboxes["service"].put_tree({"page.txt": b"x"})
        await serve(sandboxes["service"])
        for sandbox in sandboxes.values():
            if sandbox is not sandboxes["service"]:
                sandbox._box.left.append("remains")  # pyright: ignore[reportAttributeAccessIssue]
            command = Command(argv=["python", "fetch.py", "service", "8080"], files={"fetch.py": FETCH.encode()})
            for fresh in (True, False):
                assert (await sandbox.run(command, limits=LIMITS, fresh=fresh)).stdout == "x\n"


@pytest.mark.parametrize(
    "names",
    [(), ("a", "a"), ("A",), ("a b",), ("localhost",), ("a\n1",), ("1",), ("a-",), [f"x{i}" for i in range(17)]],
)
async def test_a_group_needs_names_of_hosts(names: Any) -> None:
    with pytest.raises(ConfigError, match="names"):
        async with sandbox_group(names):
            pass


async def test_a_group_is_of_an_isolating_backend_and_its_trees_are_of_its_sandboxes(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="local"):
        async with sandbox_group(["a"], backend="local"):  # pyright: ignore[reportArgumentType]
            pass
    with pytest.raises(ConfigError, match="'b'"):
        async with sandbox_group(["a"], trees={"b": []}):
            pass
