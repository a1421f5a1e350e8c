"""The client against our server and against services that play SandboxFusion's, over real HTTP on loopback."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from services import Service, answering, serving

from verl_agentic.base.errors import (
    ConfigError,
    MissingDependencyError,
    SandboxBusyError,
    SandboxError,
    SandboxUnavailableError,
)
from verl_agentic.sandbox.interface import Command, CommandResult, Limits
from verl_agentic.sandbox.local.local_backend import LocalBackend
from verl_agentic.sandbox.pools.backends import make_backend
from verl_agentic.sandbox.pools.sandbox_pool import PoolConfig, SandboxPool
from verl_agentic.sandbox.run_code.remote_backend import RemoteBackend, RemoteConfig, request_body

LIMITS = Limits(wall_s=20.0)
SUCCESS = {
    "status": "Success",
    "message": "",
    "compile_result": None,
    "run_result": {"status": "Finished", "execution_time": 0.5, "return_code": 0, "stdout": "out", "stderr": "err"},
    "executor_pod_name": "pod",
    "files": {"a": "eA=="},
}


@pytest.fixture(scope="module")
def ours() -> Iterator[Service]:
    with serving(LocalBackend(is_trusted=True), size=4, token="sesame") as running:
        yield running


class Other:
    """A service that answers from a list of (status code, body), its last one for ever; it has no `/health`."""

    def __init__(self, *answers: tuple[int, Any], headers: dict[str, str] | None = None) -> None:
        self.answers, self.headers = list(answers), headers or {}
        self.requests: list[dict[str, Any]] = []
        self.times: list[float] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        code, body = 404, {}
        if scope["path"] == "/run_code":
            data = b""
            while (message := await receive()).get("more_body") or message.get("body"):
                data += message.get("body", b"")
                if not message.get("more_body"):
                    break
            self.requests.append(json.loads(data))
            self.times.append(time.monotonic())
            code, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        headers = [(name.encode(), value.encode()) for name, value in self.headers.items()]
        await send({"type": "http.response.start", "status": code, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(body).encode()})


async def run_at(url: str, command: Command, limits: Limits = LIMITS, **config: Any) -> CommandResult:
    backend = RemoteBackend(RemoteConfig(url=url, **config))
    await backend.start()
    try:
        return await (await backend.create()).run(command, limits=limits, fresh=True)
    finally:
        await backend.close()


@pytest.fixture
async def pool(ours: Service) -> AsyncIterator[SandboxPool]:
    backend = make_backend("remote", url=f"{ours.url}/run_code", token="sesame", at_least="process_limits")
    made = SandboxPool(backend, PoolConfig(size=4))
    await made.start()
    yield made
    await made.close()


@pytest.mark.slow
async def test_all_of_a_command_and_of_its_result_goes_through_our_server(pool: SandboxPool) -> None:
    command = Command(
        argv=["bash", "-c", 'cat; cat in.txt; echo "$A"; echo note >&2; echo x > out; exit 7'],
        stdin="ä".encode(),
        files={"in.txt": b"\xff\n"},
        outputs=["out", "missing"],
        env={"A": "b c"},
    )
    result = await pool.run(command, limits=LIMITS)
    assert (result.stdout, result.stderr, result.exit_code) == ("ä\ufffd\nb c\n", "note\n", 7)
    assert result.files == {"out": b"x\n"} and result.cpu_s > 0


@pytest.mark.slow
async def test_limits_and_their_consequences_go_through_our_server(pool: SandboxPool) -> None:
    code = "print('x' * 100, flush=True)\nwhile True: pass"
    late = await pool.run(Command(code=code), limits=Limits(wall_s=2.0, output_bytes=10))
    assert late.stdout == "xxxxx\n... 91 bytes left out ...\nxxxx\n"
    assert late.timed_out and late.stdout_truncated and not late.stderr_truncated
    greedy = await pool.run(Command(code="x = bytearray(300 * 2**20)"), limits=Limits(memory_mb=100))
    assert "MemoryError" in greedy.stderr
    killed = await pool.run(Command(code="import os; os.kill(os.getpid(), 9)"), limits=LIMITS)
    assert killed.signal_name == "SIGKILL" and not killed.timed_out
    files = await pool.run(Command(code="[open('/dev/null') for _ in range(99)]"), limits=Limits(open_files=50))
    assert "Too many open files" in files.stderr


@pytest.mark.slow
async def test_code_that_is_no_text_is_a_result(pool: SandboxPool) -> None:
    assert "Error" in (await pool.run(Command(code="x = \ud800"), limits=LIMITS)).stderr


@pytest.mark.slow
async def test_many_calls_at_once_each_get_their_own_answer(pool: SandboxPool) -> None:
    results = await asyncio.gather(*(pool.run(Command(code=f"print({i})"), limits=LIMITS) for i in range(24)))
    assert [result.stdout for result in results] == [f"{i}\n" for i in range(24)]


@pytest.mark.slow
async def test_what_a_service_without_memory_cannot_do_is_a_clear_error(pool: SandboxPool) -> None:
    async with pool.lease() as sandbox:
        for call in (
            sandbox.run(Command(code="1"), limits=LIMITS),
            sandbox.open_session("python", limits=LIMITS),
            sandbox.snapshot(),
            sandbox.reset(1),
            sandbox.put_tree({"a": b""}),
            sandbox.take_tree(max_bytes=1, max_files=1),
        ):
            with pytest.raises(ConfigError, match="keeps nothing between runs"):
                await call
        await sandbox.reset()
    with pytest.raises(ConfigError, match="UTF-8"):
        await pool.run(Command(code="1", stdin=b"\xff"), limits=LIMITS)


async def test_a_service_of_somebody_else_gets_only_what_is_in_the_contract() -> None:
    other = Other((200, SUCCESS))
    with answering(other) as service:
        result = await run_at(service.url, Command(code="1", files={"f": b"x"}, outputs=["a"]), token="t")
    (request,) = other.requests
    assert request == {
        "code": "1",
        "language": "python",
        "stdin": "",
        "compile_timeout": 20.0,
        "run_timeout": 20.0,
        "memory_limit_MB": 512,
        "files": {"f": "eA=="},
        "fetch_files": ["a"],
    }
    assert (result.stdout, result.stderr, result.exit_code, result.wall_s) == ("out", "err", 0, 0.5)
    assert result.files == {"a": b"x"}


async def test_arguments_and_environment_become_code_that_any_service_can_run() -> None:
    limits = Limits(wall_s=5)
    body = request_body(Command(argv=["echo", "a b"], env={"X": "1 2"}), limits, is_ours=False)
    assert (body["language"], body["code"]) == ("bash", "export X='1 2'\nexec echo 'a b'\n")
    body = request_body(
        Command(code="import os\nprint(os.environ['X'], __name__)", env={"X": "1"}), limits, is_ours=False
    )
    backend = LocalBackend(is_trusted=True)
    await backend.start()
    result = await (await backend.create()).run(Command(code=body["code"]), limits=LIMITS)
    await backend.close()
    assert result.stdout == "1 __main__\n"
    with pytest.raises(ConfigError, match="network"):
        request_body(Command(code="1"), Limits(network=True), is_ours=False)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"status": "TimeLimitExceeded", "return_code": None, "stdout": "a"}, (True, -9, "a")),
        ({"status": "Finished", "return_code": 2, "stdout": None}, (False, 2, "")),
    ],
)
async def test_code_that_failed_there_is_a_result(part: dict[str, Any], expected: tuple[bool, int, str]) -> None:
    with answering(Other((200, {**SUCCESS, "status": "Failed", "run_result": part}))) as service:
        result = await run_at(service.url, Command(code="1"))
    assert (result.timed_out, result.exit_code, result.stdout) == expected


async def test_a_sandbox_that_failed_there_is_an_error() -> None:
    with (
        answering(
            Other((200, {**SUCCESS, "status": "SandboxError", "message": "no disk", "run_result": None}))
        ) as service,
        pytest.raises(SandboxError, match="no disk"),
    ):
        await run_at(service.url, Command(code="1"))


async def test_an_answer_that_is_none_of_the_contract_is_an_error() -> None:
    for body in ({"status": "Success"}, [], "x", {"status": "Failed", "run_result": {}}):
        with answering(Other((200, body))) as service, pytest.raises(SandboxError, match="run_code"):
            await run_at(service.url, Command(code="1"))


@pytest.mark.sample(1)
@pytest.mark.parametrize("code", [429, 500, 503, 504])
async def test_an_overloaded_or_failing_service_is_asked_again(code: int) -> None:
    other = Other((code, "busy"), (200, SUCCESS), headers={"Retry-After": "0.6"})
    with answering(other) as service:
        assert (await run_at(service.url, Command(code="1"))).stdout == "out"
    assert len(other.requests) == 2 and other.times[1] - other.times[0] >= 0.6


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("code", "error"), [(429, SandboxBusyError), (504, SandboxBusyError), (500, SandboxUnavailableError)]
)
async def test_after_the_last_attempt_the_cause_is_told(code: int, error: type[SandboxError]) -> None:
    other = Other((code, "busy"))
    with answering(other) as service, pytest.raises(error, match=f"HTTP {code}"):
        await run_at(service.url, Command(code="1"), max_attempts=2)
    assert len(other.requests) == 2


@pytest.mark.parametrize(("code", "match"), [(400, "refused the request"), (401, "another token")])
async def test_a_request_that_is_refused_is_not_repeated(code: int, match: str) -> None:
    other = Other((code, "no"))
    with answering(other) as service, pytest.raises(ConfigError, match=match):
        await run_at(service.url, Command(code="1"))
    assert len(other.requests) == 1


@pytest.mark.slow
async def test_the_deadline_holds_also_for_repetitions() -> None:
    started = time.monotonic()
    with answering(Other((503, ""))) as service, pytest.raises(SandboxError, match=r"no answer within 1 s"):
        await run_at(service.url, Command(code="1"), Limits(wall_s=0.5), deadline_s=0.5, max_attempts=100)
    assert time.monotonic() - started < 10


async def test_a_service_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(SandboxUnavailableError, match="cannot be reached"):
        await RemoteBackend(RemoteConfig(url="http://127.0.0.1:9")).start()


async def test_a_connection_that_breaks_is_made_again(ours: Service) -> None:
    backend = RemoteBackend(RemoteConfig(url=ours.url, token="sesame"))
    await backend.start()
    assert backend._client is not None
    original, failures = backend._client.post, [True, True]

    async def post(*args: Any, **kwargs: Any) -> Any:
        if failures.pop() if failures else False:
            # A port at which nobody listens: a real failure to connect.
            return await original("http://127.0.0.1:9/run_code", **kwargs)
        return await original(*args, **kwargs)

    backend._client.post = post  # type: ignore[method-assign]
    result = await (await backend.create()).run(Command(code="print(1)"), limits=LIMITS, fresh=True)
    await backend.close()
    assert result.stdout == "1\n" and not failures


async def test_a_service_that_isolates_less_than_asked_for_is_refused(ours: Service) -> None:
    with pytest.raises(SandboxUnavailableError, match="process_limits"):
        await RemoteBackend(RemoteConfig(url=ours.url, at_least="namespaces")).start()
    with answering(Other((200, SUCCESS))) as service, pytest.raises(SandboxUnavailableError, match="isolation"):
        await RemoteBackend(RemoteConfig(url=service.url, at_least="namespaces")).start()


async def test_a_wrong_token_is_told_and_no_secret_is_shown(ours: Service) -> None:
    url = ours.url.replace("://", "://me:sesame@")
    assert (await run_at(url, Command(code="print(1)"))).stdout == "1\n"
    with pytest.raises(ConfigError, match="wants another token") as caught:
        await run_at(url.replace("sesame", "hunter2"), Command(code="1"))
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(RemoteConfig(url=ours.url, token="hunter2"))


@pytest.mark.parametrize(
    ("module", "lacking"), [("pools.run_code_server", "fastapi"), ("run_code.remote_backend", "httpx")]
)
def test_a_missing_package_is_told_with_its_install(module: str, lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, lacking, None)
    monkeypatch.delitem(sys.modules, f"verl_agentic.sandbox.{module}")
    with pytest.raises(MissingDependencyError, match=r"pip install 'verl-agentic\[serve\]'"):
        importlib.import_module(f"verl_agentic.sandbox.{module}")


def test_an_address_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERL_AGENTIC_SANDBOX_URL", raising=False)
    for url in ("", "localhost:8080", "ftp://x"):
        with pytest.raises(ConfigError, match="url"):
            RemoteConfig(url=url)
    monkeypatch.setenv("VERL_AGENTIC_SANDBOX_URL", "http://h:1")
    assert RemoteConfig().url == "http://h:1"
