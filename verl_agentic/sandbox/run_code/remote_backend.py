"""The backend `remote`: any service with SandboxFusion's `/run_code`, including our own server.

The service is stateless: every run is fresh, and there are no sessions and snapshots.
"""

from __future__ import annotations

import asyncio
import base64
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field, replace
from typing import Any, NoReturn
from urllib.parse import unquote, urlsplit, urlunsplit

from verl_agentic.base.deadlines import running_code
from verl_agentic.base.env_card import needs_extra
from verl_agentic.base.errors import (
    ConfigError,
    SandboxBusyError,
    SandboxError,
    SandboxUnavailableError,
)
from verl_agentic.base.settings import Settings, setting
from verl_agentic.sandbox.interface import (
    BadRequestError,
    Command,
    CommandResult,
    Limits,
    SandboxSession,
    SessionKind,
    TakenTree,
    Tree,
)
from verl_agentic.sandbox.isolation import Isolation
from verl_agentic.sandbox.run_code.run_code_wire import SERVICE, result_of
from verl_agentic.sandbox.source_trees import refuse_image, refuse_trees
from verl_agentic.web.http_service import Attempts, open_http, read_wait_s

with needs_extra("serve", what="the backend remote"):
    import httpx

URL_VARIABLE, TOKEN_VARIABLE = "VERL_AGENTIC_SANDBOX_URL", "VERL_AGENTIC_SANDBOX_TOKEN"
_RUN_CODE = "/run_code"
_FIRST_PAUSE_S = 0.4
_HEALTH_TIMEOUT_S = 10.0


class RemoteConfig(Settings):
    """The service of the backend `remote`."""

    url: str = field(default_factory=lambda: os.environ.get(URL_VARIABLE, ""))
    """Address, with or without `/run_code`; by default of the environment variable `VERL_AGENTIC_SANDBOX_URL`."""
    token: str = field(default_factory=lambda: os.environ.get(TOKEN_VARIABLE, ""), repr=False)
    """Bearer token; by default of the environment variable `VERL_AGENTIC_SANDBOX_TOKEN`."""
    deadline_s: float = setting(120.0, above=0)
    """Maximum time of a call beyond the execution's own, with queue and retries, in seconds."""
    max_attempts: int = setting(6, min=1)
    """Maximum number of requests per call, if the service is overloaded, fails or is unreachable."""
    max_connections: int = setting(64, min=1)
    """Connections at one time."""
    at_least: str = "none"
    """Minimum isolation that the service must report; a service without a report passes with `none` only."""

    def check_together(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ConfigError(f"url must be http(s)://HOST:PORT, got {self.url!r}; set it or {URL_VARIABLE}")
        Isolation.parse(self.at_least)


class RemoteBackend:
    """Sandboxes of a service."""

    name = "remote"

    def __init__(self, config: RemoteConfig) -> None:
        self._config = config
        self._url, self._auth = _split_url(config.url)
        self._client: httpx.AsyncClient | None = None
        self._is_ours = False
        self.isolation = Isolation.NONE
        """As reported by the service."""

    async def start(self) -> None:
        """Connects. Raises SandboxUnavailableError if the service is unreachable, or isolates less than required."""
        if self._client is not None:
            return
        options = {"token": self._config.token, "max_connections": self._config.max_connections, "auth": self._auth}
        client = open_http(self._url, extra="serve", what="the backend remote", **options)
        try:
            self._apply_health(await _fetch_health(client, self._url))
        except BaseException:
            await client.aclose()
            raise
        self._client = client

    async def create(self, *, trees: Sequence[Tree] = (), image: str | None = None) -> RemoteSandbox:
        """Makes the client's end of a sandbox; the service makes one for every run.

        Raises:
            ConfigError: trees or an image are given, because the service keeps nothing.
        """
        refuse_image(self.name, image)
        refuse_trees(self.name, trees)
        if self._client is None:
            raise SandboxError("the backend is not started, got a call of create; await start() first")
        return RemoteSandbox(self)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def run(self, command: Command, *, limits: Limits) -> CommandResult:
        """Runs a command on the service.

        Raises:
            ConfigError: the contract or this service does not support the command.
            SandboxBusyError: the service stayed overloaded.
            SandboxError: it failed or was unreachable.
        """
        with running_code(limits.wall_s) as wall_s:
            return await self._run_command(command, replace(limits, wall_s=wall_s))

    async def _run_command(self, command: Command, limits: Limits) -> CommandResult:
        body = request_body(command, limits, is_ours=self._is_ours)
        deadline_s = limits.wall_s + self._config.deadline_s
        try:
            answer = await asyncio.wait_for(self._send_request(body), deadline_s)
        except asyncio.TimeoutError as cause:
            raise SandboxError(f"{self._url} gave no answer within {deadline_s:g} s; is it overloaded?") from cause
        return result_of(answer, output_bytes=limits.output_bytes)

    def _apply_health(self, health: Mapping[str, Any]) -> None:
        self._is_ours = health.get("service") == SERVICE
        self.isolation = Isolation.parse(health["isolation"]) if self._is_ours else Isolation.NONE
        needed = Isolation.parse(self._config.at_least)
        if self.isolation < needed:
            claim = f"isolation {self.isolation.name.lower()}" if self._is_ours else "nothing of its isolation"
            raise SandboxUnavailableError(
                f"the service must isolate by {needed.name.lower()} or better, got {claim} of {self._url}; use another "
                "one, or, if you trust it, set at_least=none"
            )

    async def _send_request(self, body: dict[str, Any]) -> Any:
        """Sends a request until it is answered; running code twice is harmless, because it leaves no state."""
        failure = SandboxError("the backend was not asked")
        attempts = Attempts(self._config.max_attempts, first_s=_FIRST_PAUSE_S)
        async for _ in attempts:
            if self._client is None:
                raise SandboxError("the backend is closed, got a call to it; start it again")
            try:
                response = await self._client.post(self._url + _RUN_CODE, json=body)
            except httpx.TransportError as cause:
                failure = _build_unreachable_error(self._url, cause)
                continue
            if response.status_code == 200:
                return _parse_json(response)
            failure = _classify_failure(response)
            attempts.asked_s = read_wait_s(response.headers.get("retry-after"))
        raise failure


class RemoteSandbox:
    """A stateless sandbox (`sandbox.interface.Sandbox` without sessions and snapshots)."""

    def __init__(self, backend: RemoteBackend) -> None:
        self._backend = backend
        self._is_closed = False

    async def run(self, command: Command, *, limits: Limits, fresh: bool = False) -> CommandResult:
        """Runs a command; see `Sandbox.run`. Raises ConfigError if `fresh` is false, because no file would stay."""
        if not fresh:
            _refuse_call("files that stay between runs", "run with fresh=True, or through a pool")
        if self._is_closed:
            raise SandboxError("the sandbox is closed, got a call to it; make a new one")
        return await self._backend.run(command, limits=limits)

    async def open_session(self, kind: SessionKind, *, limits: Limits) -> SandboxSession:
        """Raises: a stateless service has no sessions."""
        _refuse_call(f"a {kind} session")

    async def put_tree(
        self, files: Mapping[str, bytes], *, at: str = ".", modes: Mapping[str, int] | None = None
    ) -> None:
        """Raises: a stateless service keeps no files."""
        _refuse_call("a tree of files")

    async def take_tree(self, at: str = ".", *, max_bytes: int, max_files: int) -> TakenTree:
        """Raises: a stateless service keeps no files."""
        _refuse_call("a tree of files")

    async def snapshot(self) -> int:
        """Raises: a stateless service has no snapshots."""
        _refuse_call("a snapshot")

    async def reset(self, snapshot: int | None = None) -> None:
        """Does nothing without a snapshot, because every run is fresh."""
        if snapshot is not None:
            _refuse_call("a snapshot")

    async def close(self) -> None:
        self._is_closed = True


def request_body(command: Command, limits: Limits, *, is_ours: bool) -> dict[str, Any]:
    """Returns the request for a command.

    Args:
        limits: the contract has only wall time and memory.
        is_ours: whether the service supports our extension (environment and all limits).

    Raises:
        ConfigError: the contract does not support the command.
    """
    try:
        stdin = command.stdin.decode()
    except UnicodeDecodeError as cause:
        raise ConfigError(f"stdin over the backend remote must be UTF-8, got {cause}; give it as a file") from cause
    extension: dict[str, Any] = {}
    code, language = command.code, "python"
    if is_ours:
        limit_fields = {name: value for name, value in asdict(limits).items() if name not in ("wall_s", "memory_mb")}
        argv = None if command.argv is None else [_make_encodable(word) for word in command.argv]
        extension = {"extension": {"argv": argv, "env": dict(command.env), "limits": limit_fields}}
    elif limits.network:
        raise ConfigError("network over the backend remote is the service's to give, got network=True")
    elif command.argv is not None:
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in command.env.items())
        code, language = f"{exports}exec {shlex.join(command.argv)}\n", "bash"
    elif command.env:
        run = f"exec(compile({command.code!r}, 'main.py', 'exec', dont_inherit=True), globals())"
        code = f"import os\nos.environ.update({dict(command.env)!r})\n{run}\n"
    return {
        "code": _make_encodable(code or ""),
        "language": language,
        "stdin": stdin,
        "compile_timeout": limits.wall_s,
        "run_timeout": limits.wall_s,
        "memory_limit_MB": limits.memory_mb,
        "files": {path: base64.b64encode(data).decode() for path, data in command.files.items()},
        "fetch_files": list(command.outputs),
        **extension,
    }


def _refuse_call(need: str, instead: str = "use the backend namespaces or docker") -> NoReturn:
    raise ConfigError(f"the backend remote keeps nothing between runs, got a call that needs {need}; {instead}")


def _split_url(url: str) -> tuple[str, tuple[str, str] | None]:
    """Splits a URL into an address without credentials, and user and password."""
    parts = urlsplit(url)
    netloc = parts.netloc.rpartition("@")[2]
    base = urlunsplit((parts.scheme, netloc, parts.path.rstrip("/").removesuffix(_RUN_CODE), "", ""))
    return base, None if netloc == parts.netloc else (unquote(parts.username or ""), unquote(parts.password or ""))


def _make_encodable(text: str) -> str:
    """Returns encodable text, because a policy may write invalid characters."""
    return text.encode("utf-8", "replace").decode()


async def _fetch_health(client: httpx.AsyncClient, url: str) -> Mapping[str, Any]:
    """Returns a service's `/health` report; empty if it has none, like SandboxFusion's own."""
    try:
        response = await client.get(f"{url}/health", timeout=_HEALTH_TIMEOUT_S)
    except httpx.TransportError as cause:
        raise _build_unreachable_error(url, cause) from cause
    try:
        health = response.json() if response.status_code == 200 else {}
    except ValueError:
        health = {}
    return health if isinstance(health, dict) else {}


def _build_unreachable_error(url: str, cause: Exception) -> SandboxError:
    return SandboxUnavailableError(
        f"{url} cannot be reached, got {type(cause).__name__}: {cause}; is the service running?"
    )


def _classify_failure(response: httpx.Response) -> SandboxError:
    """Returns the error after the last attempt. Raises ConfigError if the request itself is rejected."""
    answer = f"HTTP {response.status_code}: {response.text[:500]}"
    if response.status_code in (401, 403):
        raise ConfigError(f"{response.url} wants another token, got {answer}; set token or {TOKEN_VARIABLE}")
    if response.status_code == 429 or response.status_code == 504:
        return SandboxBusyError(f"{response.url} is overloaded, got {answer}; send fewer at a time, or add servers")
    if response.status_code >= 500:
        return SandboxUnavailableError(f"{response.url} failed, got {answer}; see its log")
    if response.status_code in (400, 413, 422):
        raise BadRequestError(f"{response.url} refused the request, got {answer}")
    raise ConfigError(f"{response.url} refused the request, got {answer}")


def _parse_json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError as cause:
        raise SandboxError(f"{response.url} must answer with JSON, got {response.text[:200]!r}") from cause
