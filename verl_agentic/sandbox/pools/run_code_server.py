"""A sandbox service that speaks SandboxFusion's contract, `POST /run_code`, over a pool of sandboxes.

    POST /run_code   runs code; fields beyond the contract are in `run_code_wire.py`
    GET  /health     properties of the service; needs no token
    GET  /metrics    Prometheus text

Answers: 200 with a status, also if the code failed; 400 invalid request; 401 missing or wrong token; 403 a foreign web
page; 413 too large; 415 not announced as JSON; 429 the queue is full; 504 no free sandbox in time (the only code that
verl's client retries).
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from verl_agentic.base.env_card import needs_extra
from verl_agentic.base.errors import (
    ConfigError,
    SandboxBusyError,
    SandboxError,
    SandboxUnavailableError,
)
from verl_agentic.base.settings import Settings, read_settings, setting
from verl_agentic.sandbox.interface import Backend, Command, Limits
from verl_agentic.sandbox.pools.backends import isolation_of
from verl_agentic.sandbox.pools.sandbox_pool import PoolConfig, SandboxPool
from verl_agentic.sandbox.run_code.languages import LANGUAGES, Language, languages_in
from verl_agentic.sandbox.run_code.run_code_wire import SERVICE, RunRequest, answer_of, failure_of
from verl_agentic.web.listening.request_guard import RequestGuard, require_token

with needs_extra("serve", what="serving sandboxes"):
    from fastapi import FastAPI, HTTPException, Request, Response
    from pydantic import ValidationError

_RETRY_AFTER_S = "1"


class ServerConfig(Settings):
    """Limits of the service."""

    size: int = setting(2 * (os.cpu_count() or 1), min=1)
    """Executions at one time."""
    max_waiting: int = setting(1_000, min=0)
    """Maximum number of waiting requests; more get 429."""
    queue_timeout_s: float = setting(8.0, above=0)
    """Maximum wait, in seconds; then 504. verl's client waits 10 s beyond its requested timeouts."""
    max_timeout_s: float = 300.0
    """Maximum `run_timeout` and `compile_timeout` of a request, in seconds."""
    max_memory_mb: int = 8_192
    """Maximum memory of a request, in MiB."""
    default_memory_mb: int = 1_024
    """Default memory, in MiB."""
    output_bytes: int = 2**20
    """Bytes kept of stdout and of stderr each."""
    max_request_mb: int = 64
    """Maximum size of a request, in MiB."""
    token: str = ""
    """Required token, as bearer token or as password of a URL; empty: none."""


class SandboxServer:
    """The service without HTTP: counts, queue, pool."""

    def __init__(self, backend: Backend, config: ServerConfig | None = None) -> None:
        self.config = config or ServerConfig()
        self._backend = backend
        pool = PoolConfig(
            size=self.config.size,
            warm=min(2, self.config.size),
            max_waiting=self.config.max_waiting + self.config.size,
            wait_timeout_s=self.config.queue_timeout_s,
        )
        self._pool = SandboxPool(backend, pool)
        self._languages: dict[str, Language] = {}
        self._num_inside = 0
        self._answers: Counter[str] = Counter()

    async def start(self) -> None:
        """Starts the backend and finds its languages. Raises SandboxError if the backend cannot work here."""
        await self._pool.start()
        async with self._pool.lease() as sandbox:
            self._languages = await languages_in(sandbox)
        proven = await asyncio.gather(*(self._is_proven(name) for name in self._languages))
        self._languages = {
            name: self._languages[name] for name, works in zip(self._languages, proven, strict=True) if works
        }
        if not self._languages:
            raise SandboxUnavailableError(
                f"the backend {self._backend.name} runs no language, got no 42 of {', '.join(LANGUAGES)}; see its image"
            )

    async def close(self) -> None:
        await self._pool.close()

    async def run(self, request: RunRequest) -> dict[str, Any]:
        """Returns the answer to a request. Raises HTTPException if the request is rejected."""
        if self._num_inside >= self.config.size + self.config.max_waiting:
            raise self.refusal(429, f"{self._num_inside} requests are being worked on, got one more; try again later")
        self._num_inside += 1
        try:
            answer = await self._run_request(request)
        except ConfigError as cause:
            raise self.refusal(400, str(cause)) from cause
        except SandboxBusyError as cause:
            raise self.refusal(504, str(cause)) from cause
        except SandboxError as cause:
            answer = failure_of(str(cause))
        finally:
            self._num_inside -= 1
        self._answers[answer["status"]] += 1
        return answer

    def health(self) -> dict[str, Any]:
        """Returns the properties of the service."""
        return {
            "status": "ok",
            "service": SERVICE,
            "backend": self._backend.name,
            "isolation": isolation_of(self._backend).name.lower(),
            "languages": sorted(self._languages),
            "size": self.config.size,
        }

    def metrics(self) -> str:
        """Returns Prometheus text."""
        values = self._pool.metrics()
        lines: list[str] = []
        for kind, names in _METRICS.items():
            for name, help_line in names.items():
                full = f"verl_agentic_sandbox_{name}" + ("_total" if kind == "counter" else "")
                lines += [f"# HELP {full} {help_line}", f"# TYPE {full} {kind}", f"{full} {values[name]:g}"]
        for name, help_line in _SUMMARIES.items():
            full = f"verl_agentic_sandbox_{name}econds"
            lines += [f"# HELP {full} {help_line}", f"# TYPE {full} summary"]
            for share in (50, 95, 99):
                quantile = values[f"{name}_p{share}"]
                lines.append(f'{full}{{quantile="{share / 100:g}"}} {quantile:g}')
        full = "verl_agentic_sandbox_answers_total"
        lines += [f"# HELP {full} Answers by status, or by HTTP code when refused.", f"# TYPE {full} counter"]
        lines += [f'{full}{{status="{status}"}} {count}' for status, count in sorted(self._answers.items())]
        return "\n".join(lines) + "\n"

    def count_refusal(self, code: int, reason: str) -> dict[str, Any]:
        """Counts a refusal and returns its body."""
        self._answers[str(code)] += 1
        return {"detail": reason}

    async def _is_proven(self, name: str) -> bool:
        """Returns whether a language's test program runs, because an installed compiler may be incomplete."""
        request = RunRequest(code=self._languages[name].proof, language=name, compile_timeout=60, run_timeout=60)
        try:
            answer = await self._run_request(request)
        except SandboxError:
            return False
        return (answer["run_result"] or {}).get("stdout", "").strip() == "42"

    def refusal(self, code: int, reason: str) -> HTTPException:
        """Counts and returns a refusal."""
        self.count_refusal(code, reason)
        return HTTPException(code, reason, headers={"Retry-After": _RETRY_AFTER_S} if code in (429, 504) else None)

    async def _run_request(self, request: RunRequest) -> dict[str, Any]:
        language = self._languages.get(request.language)
        if language is None:
            offered = ", ".join(sorted(self._languages))
            raise ConfigError(f"the language must be one of {offered}, got {request.language!r}")
        limits = self._build_limits(request, language)
        files = request.decoded_files()
        extension = request.extension
        stdin = (request.stdin or "").encode("utf-8", "surrogatepass")
        if request.language == "python" or extension.argv is not None:
            program: dict[str, Any] = {"code": request.code} if extension.argv is None else {"argv": extension.argv}
            command = Command(files=files, stdin=stdin, outputs=request.fetch_files, env=extension.env, **program)
            return answer_of(await self._pool.run(command, limits=limits))
        files[language.source] = request.code.encode("utf-8", "replace")
        run = Command(argv=language.run, files=files, stdin=stdin, outputs=request.fetch_files, env=extension.env)
        if not language.compile:
            return answer_of(await self._pool.run(run, limits=limits))
        return await self._compile_and_run(language, files, run, request=request, limits=limits)

    async def _compile_and_run(
        self, language: Language, files: dict[str, bytes], run: Command, *, request: RunRequest, limits: Limits
    ) -> dict[str, Any]:
        compiling = self._build_limits(request, language, wall_s=request.compile_timeout, is_compiler=True)
        async with self._pool.lease() as sandbox:
            command = Command(argv=language.compile, files=files)
            compiled = await sandbox.run(command, limits=compiling)
            if not compiled.ok:
                return answer_of(None, compiled=compiled)
            again = Command(argv=run.argv, stdin=run.stdin, outputs=run.outputs, env=run.env)
            return answer_of(await sandbox.run(again, limits=limits), compiled=compiled)

    def _build_limits(
        self, request: RunRequest, language: Language, *, wall_s: float | None = None, is_compiler: bool = False
    ) -> Limits:
        config = self.config
        wall_s = request.run_timeout if wall_s is None else wall_s
        memory_mb = request.memory_limit_MB if request.memory_limit_MB > 0 else config.default_memory_mb
        if wall_s > config.max_timeout_s or memory_mb > config.max_memory_mb:
            raise ConfigError(
                f"this service allows {config.max_timeout_s:g} s and {config.max_memory_mb} MiB, got {wall_s:g} s and "
                f"{memory_mb} MiB; ask for less"
            )
        memory_mb = max(memory_mb, language.memory_mb, config.default_memory_mb if is_compiler else 0)
        limit_fields = {} if is_compiler else request.extension.limits
        default = {"cpu_s": int(wall_s) + 2, "output_bytes": config.output_bytes}
        limits = {**default, **limit_fields, "wall_s": wall_s, "memory_mb": memory_mb}
        limits["output_bytes"] = min(limits["output_bytes"], config.output_bytes)
        return read_settings(Limits, limits, section="limits")


_METRICS = {
    "gauge": {
        "waiting": "Requests that wait for a sandbox.",
        "starting": "Sandboxes that are being made.",
        "running": "Executions and leases now.",
        "warm": "Sandboxes made ahead of need.",
    },
    "counter": {
        "completed": "Executions that ended.",
        "failed": "Failures of sandboxes, not of code.",
        "refused": "Requests that got no sandbox in time.",
        "created": "Sandboxes made.",
        "retired": "Sandboxes taken out of use.",
    },
}
_SUMMARIES = {"wait_s": "Waits for a sandbox.", "run_s": "Executions."}


def make_app(server: SandboxServer) -> FastAPI:
    """Returns the ASGI application over a server that has been started."""
    config = server.config
    app = FastAPI(title="verl-agentic sandbox", docs_url=None, redoc_url=None, openapi_url=None)

    app.add_middleware(
        RequestGuard,
        authorize=require_token(config.token),
        max_body_bytes=config.max_request_mb * 2**20,
        write_refusal=lambda scope, code, reason: server.count_refusal(code, reason),
    )

    @app.post("/run_code")
    async def run_code(request: Request) -> dict[str, Any]:
        try:
            parsed = RunRequest.model_validate(request.state.json)
        except ValidationError as cause:
            problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in cause.errors())
            raise server.refusal(400, f"the request is not one of run_code, got {problems}") from cause
        return await _unless_gone(request, server.run(parsed))

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return server.health()

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(server.metrics(), media_type="text/plain; version=0.0.4")

    return app


async def _unless_gone(request: Request, work: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """Returns the result of the work; cancels it if the client disconnects."""
    task = asyncio.ensure_future(work)
    disconnect = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait({task, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise HTTPException(499, "the client has gone")
        return task.result()
    finally:
        for waiting in (task, disconnect):
            waiting.cancel()
        await asyncio.gather(task, disconnect, return_exceptions=True)


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
