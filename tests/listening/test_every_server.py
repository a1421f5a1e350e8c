"""Every server refuses foreign web pages, strangers, bodies that are no JSON, and clients that take too much."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import logging
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("fastapi")

from every_server import SERVERS, TOKEN, Served, listening

import verl_agentic
from verl_agentic.web.listening.request_guard import MAX_DEPTH, RequestGuard

_TIMEOUT_S = 30


@pytest.fixture(params=SERVERS)
async def served(request: pytest.FixtureRequest) -> Served:
    return SERVERS[request.param]()


@contextlib.asynccontextmanager
async def client_of(served: Served, **limits: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with listening(served.app, **limits) as port:
        url = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=url, headers=served.headers, timeout=_TIMEOUT_S, trust_env=False) as http:
            yield http


def is_passed(answer: httpx.Response) -> bool:
    """Returns whether the application itself answered."""
    return answer.status_code not in (401, 403, 413, 415)


# Foreign web pages.


@pytest.mark.sample(2)
async def test_a_page_whose_name_points_here_is_refused_and_this_machine_is_not(served: Served) -> None:
    foreign = ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example", "[", "0.0.0.0",
               "10.0.0.1", "evil.example@x", "127.0.0.1,evil.example", "")  # fmt: skip
    async with client_of(served) as http:
        for host in foreign:
            for path in ("/health", served.get):
                assert (await http.get(path, headers={"Host": host})).status_code == 403, host
            assert (await http.post(served.post or "/", headers={"Host": host}, json={})).status_code == 403, host
        for host in (
            "localhost:9",
            "127.0.0.1",
            "127.8.8.8:1",
            "[::1]:8080",
            "LOCALHOST",
            socket.gethostname(),
        ):  # also through a tunnel
            assert is_passed(await http.get(served.get, headers={"Host": host})), host


@pytest.mark.sample(2)
async def test_a_request_of_a_foreign_page_is_refused(served: Served) -> None:
    async with client_of(served) as http:
        own = f"http://127.0.0.1:{http.base_url.port}"
        foreign: list[list[tuple[str, str]]] = [
            [("Origin", "http://evil.example")],
            [("Origin", "null")],
            [("Origin", "")],
            [("Origin", "http://127.0.0.1:1")],
            [("Origin", f"http://localhost:{http.base_url.port}")],
            [("Origin", own), ("Origin", "http://evil.example")],
            [("Sec-Fetch-Site", "cross-site")],
            [("Sec-Fetch-Site", "same-site")],
            [("Origin", own), ("Sec-Fetch-Site", "cross-site")],
        ]
        for headers in foreign:
            for method, path in (("GET", served.get), ("GET", "/health"), ("POST", served.post or "/")):
                body = {} if method == "GET" else {"json": {}}
                answer = await http.request(method, path, headers=[*headers, *served.headers.items()], **body)
                assert answer.status_code == 403, (headers, method, path)
        for headers in ([("Origin", own)], [("Sec-Fetch-Site", "same-origin")], [("Sec-Fetch-Site", "none")]):
            assert is_passed(await http.get(served.get, headers=[*headers, *served.headers.items()]))


@pytest.mark.sample(3)
async def test_no_answer_lets_foreign_pages_read_it(served: Served) -> None:
    async with client_of(served) as http:
        for method in ("GET", "OPTIONS"):
            answer = await http.request(method, served.get)
            assert not [name for name in answer.headers if name.startswith("access-control")]


# Strangers.


@pytest.mark.sample(3)
async def test_a_stranger_is_refused_and_a_friend_is_not(served: Served) -> None:
    async with client_of(served) as http:
        assert is_passed(await http.get(served.get))
        http.headers = httpx.Headers()
        wrong = base64.b64encode(b"x:wrong").decode()
        cookie = re.sub("=.*", "=wrong", served.headers.get("Cookie", "x"))
        key = re.sub(r"/[0-9a-f]{32}/", f"/{'0' * 32}/", served.get)
        wrong_ones = ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {wrong}"}, {"Cookie": cookie},
                      {"Authorization": "Bearer"}, {"Authorization": "Basic \xff"}, {"x-api-key": "w\xe4"})  # fmt: skip
        for headers in wrong_ones:
            raw = {name: value.encode("latin-1") for name, value in headers.items()}
            answer = await http.get(key, headers=raw)
            assert answer.status_code == served.refused_without_token, headers


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["model", "env", "sandbox", "search"])
async def test_a_token_is_a_bearer_token_an_api_key_or_the_password_of_a_url(name: str) -> None:
    served = SERVERS[name]()
    async with client_of(served) as http:
        http.headers = httpx.Headers()
        for headers in (
            {"Authorization": f"Bearer {TOKEN}"},
            {"authorization": f"bearer {TOKEN}"},
            {"x-api-key": TOKEN},
        ):
            assert is_passed(await http.get(served.get, headers=headers))
        assert is_passed(await http.get(served.get, auth=("anyone", TOKEN)))
        assert not is_passed(await http.get(served.get, auth=(TOKEN, "")))


@pytest.mark.sample(4)
async def test_the_body_of_a_stranger_is_not_read(served: Served) -> None:
    async with listening(served.app) as port:
        path = re.sub(r"/[0-9a-f]{32}/", f"/{'0' * 32}/", served.post or "/")
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n"
        )
        status, _ = await ask(port, head.encode())
        assert status in (401, 403, 404, 415, 405)


# Bodies.


@pytest.mark.sample(3)
async def test_a_body_that_a_foreign_page_can_send_is_refused(served: Served) -> None:
    async with client_of(served) as http:
        for kinds in (["text/plain"], [], ["application/x-www-form-urlencoded"], ["multipart/form-data; boundary=x"],
                      ["text/plain; application/json"], ["text/plain, application/json"], ["application/jsonx"],
                      ["application/json", "text/plain"]):  # fmt: skip
            headers = [("Content-Type", kind) for kind in kinds]
            answer = await http.post(served.post or "/", headers=[*headers, *served.headers.items()], content=b"{}")
            assert answer.status_code == 415, kinds
            assert served.error_key in answer.json() or not served.post
        kind = {"Content-Type": "Application/JSON; charset=utf-8"}
        assert is_passed(await http.post(served.post or "/", headers=kind, content=b"{}"))


@pytest.mark.sample(2)
async def test_a_body_that_is_too_deep_or_too_large_or_no_json_is_refused(served: Served) -> None:
    deep = MAX_DEPTH + 1
    async with client_of(served) as http:
        for body in (b"", b"{", b"\xff", b"[" * 100_000, b"[" * deep + b"]" * deep,
                     b'{"a":' * deep + b"1" + b"}" * deep, b"1" * 10_000):  # fmt: skip
            answer = await http.post(served.post or "/", headers={"Content-Type": "application/json"}, content=body)
            assert answer.status_code == 400, body[:10]
            assert served.error_key in answer.json() or not served.post
    async with listening(served.app) as port:
        head = f"POST {served.post or '/'} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in served.headers.items())
        status, _ = await ask(port, (head + f"Content-Length: {10**12}\r\n\r\n").encode())
        assert status == 413


@pytest.mark.sample(3)
async def test_a_body_without_a_declared_length_is_limited(served: Served) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 100

    for guard in _guards(served.app):
        guard._max_body_bytes = 1_000
    async with client_of(served) as http:
        answer = await http.post(served.post or "/", headers={"Content-Type": "application/json"}, content=parts())
        assert answer.status_code == 413
        assert is_passed(await http.get(served.get))


def _guards(app: Any) -> list[RequestGuard]:
    """Returns the guards of an application; builds its middleware."""
    if isinstance(app, RequestGuard):
        return [app]
    app.middleware_stack = layer = app.build_middleware_stack()
    found = []
    while hasattr(layer, "app") or isinstance(layer, RequestGuard):
        if isinstance(layer, RequestGuard):
            found.append(layer)
        layer = layer._app if isinstance(layer, RequestGuard) else layer.app
    assert found
    return found


# Clients that take too much.


async def ask(port: int, head: bytes) -> tuple[int, bytes]:
    """Sends bytes and returns the status of the answer, and what is left of it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(head)
        line = await asyncio.wait_for(reader.readline(), _TIMEOUT_S)
        return int(line.split()[1]), line
    finally:
        writer.close()


async def is_dropped(reader: asyncio.StreamReader) -> bool:
    """Returns whether the server closes a connection without an answer."""
    try:
        return not await asyncio.wait_for(reader.read(1), _TIMEOUT_S)
    except ConnectionError:
        return True


@pytest.mark.sample(1)
async def test_a_connection_that_sends_no_request_is_dropped(served: Served) -> None:
    async with listening(served.app, head_s=0.3) as port:
        begun = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for (_, writer), sent in zip(begun, (b"", b"GET / HTTP/1.1\r\n", b"GET /"), strict=True):
            writer.write(sent)
        for reader, writer in begun:
            assert await is_dropped(reader)
            writer.close()


@pytest.mark.sample(1)
async def test_a_head_and_a_body_that_drip_are_dropped_and_an_idle_connection_is_not(served: Served) -> None:
    whole = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = f"POST {served.post or '/'} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in served.headers.items())

    async def is_drip_dropped(port: int, begun: str, *, is_first: bool = True) -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        if not is_first:
            await answer_of(reader, writer)
        writer.write(begun.encode())
        sending = asyncio.ensure_future(drip(writer))
        try:
            return await is_dropped(reader)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            writer.close()

    async def drip(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"a")
            await asyncio.sleep(0.1)

    async def answer_of(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(whole)
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _TIMEOUT_S)
        length = int(answer.lower().split(b"content-length:")[1].split()[0])
        await asyncio.wait_for(reader.readexactly(length), _TIMEOUT_S)

    async with listening(served.app, head_s=0.3, body_s=0.3, keep_alive_s=60) as port:
        idle = await asyncio.open_connection("127.0.0.1", port)
        await answer_of(*idle)
        results = await asyncio.gather(
            is_drip_dropped(port, head),
            is_drip_dropped(port, head, is_first=False),
            is_drip_dropped(port, head + "Content-Length: 9999\r\n\r\n"),
        )
        assert all(results)
        await answer_of(*idle)
        idle[1].close()


@pytest.mark.sample(3)
async def test_connections_that_wait_do_not_keep_others_out(served: Served) -> None:
    async with client_of(served, max_connections=8, head_s=3_600) as http:
        held = [await asyncio.open_connection("127.0.0.1", http.base_url.port) for _ in range(40)]
        for _, writer in held:
            writer.write(b"GET / HTTP/1.1\r\n")
        assert is_passed(await http.get(served.get))
        for _, writer in held:
            writer.close()


@pytest.mark.sample(1)
async def test_without_descriptors_the_server_waits_and_logs_once(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    accept, failures = loop.sock_accept, 3

    async def fail(listening: Any) -> Any:
        nonlocal failures
        if failures:
            failures -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return await accept(listening)

    monkeypatch.setattr(loop, "sock_accept", fail)
    with caplog.at_level(logging.WARNING):
        async with client_of(served) as http:
            assert is_passed(await http.get(served.get))
    assert not failures
    assert len(caplog.records) == 1 and "accepted" in caplog.text


@pytest.mark.sample(4)
async def test_what_is_no_request_leaves_no_log(served: Served, capfd: pytest.CaptureFixture[str]) -> None:
    upgrade = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    async with listening(served.app) as port:
        star, hosts = (
            b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        )
        for garbage in (b"\x16\x03\x01\r\n\r\n", b"GET\r\n\r\n", star, upgrade, hosts):
            assert (await ask(port, garbage))[0] in range(400, 500)
    assert capfd.readouterr().err == ""


def test_no_server_listens_in_another_way() -> None:
    package = Path(verl_agentic.__file__).parent
    own = re.compile(r"uvicorn\.(run|Server|Config)\(|\bHTTPServer\b|HTTPServer\(|start_server\(|create_server\(")
    sources = {
        str(path.relative_to(package)): path.read_text()
        for path in package.rglob("*.py")
        if not path.name.startswith("test_")
    }
    listening_ones = {name for name, source in sources.items() if own.search(source)}
    assert {name for name in listening_ones if not name.startswith("web/listening/")} == set()
