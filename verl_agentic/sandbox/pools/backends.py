"""Makes backends by name, or `auto`, which tests each candidate on this machine and reports why it rejects others."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl_agentic.base.errors import (
    AgenticError,
    ConfigError,
    MissingDependencyError,
    SandboxError,
    SandboxUnavailableError,
    boundary,
)
from verl_agentic.base.settings import check_options, read_settings
from verl_agentic.sandbox.interface import Backend, Command, Limits, Sandbox, Tree
from verl_agentic.sandbox.isolation import DEFAULT_ISOLATION, Isolation

_PROBE_TIMEOUT_S = 60.0
_logger = logging.getLogger(__name__)


AUTO_ORDER = ("namespaces", "docker", "landlock", "local")
"""Safest and cheapest first; `local` only if `at_least` allows it, and never as root."""
ELSEWHERE = ("daytona", "e2b", "kubernetes", "modal")
"""Machines of a provider, which cost money. `auto` never uses them."""
NAMES = (*AUTO_ORDER, "remote", *ELSEWHERE, "auto")
_ISOLATION = {
    "local": Isolation.PROCESS_LIMITS,
    "landlock": Isolation.LANDLOCK,
    "namespaces": Isolation.NAMESPACES,
    "docker": Isolation.CONTAINER,
}


_LACKS = {
    "namespaces": "images",
    "docker": "read-only trees",
    "landlock": "images, read-only trees; names of the host's packages are visible",
    "local": "images, read-only trees, hidden packages of the host, a limit on the disk",
    "remote": "images, trees, files between runs, sessions, snapshots",
    "daytona": "read-only trees",
    "e2b": "images, read-only trees",
    "kubernetes": "images, read-only trees",
    "modal": "read-only trees",
}


@dataclass(frozen=True, kw_only=True)
class BackendProbe:
    """The result of testing a backend."""

    name: str
    isolation: str
    """Level, in lower case."""
    refusal: str = ""
    """Reason why it cannot be used here; empty if it can."""
    start_ms: float = 0.0
    """Time to the first result, in milliseconds."""
    run_ms: float = 0.0
    """Time of a one-line program in a running sandbox, in milliseconds."""

    @property
    def lacks(self) -> str:
        """Needs of work on repositories that the backend does not meet; empty if it meets all."""
        return _LACKS.get(self.name, "")

    @property
    def works(self) -> bool:
        """True when code ran in it."""
        return not self.refusal


class AutoBackend:
    """The first backend that works here and isolates enough; chosen by `start`."""

    def __init__(
        self, *, at_least: Isolation, options: Mapping[str, Mapping[str, Any]], order: Sequence[str] = AUTO_ORDER
    ) -> None:
        """Takes the minimum isolation, and options by name of backend."""
        self._at_least, self._options, self._order = at_least, options, order
        self._chosen: Backend | None = None
        self.refusals: dict[str, str] = {}

    @property
    def name(self) -> str:
        """Name of the chosen backend; `auto` before the choice."""
        return "auto" if self._chosen is None else self._chosen.name

    @property
    def isolation(self) -> Isolation:
        """Isolation of the chosen backend; before the choice, the minimum."""
        return self._at_least if self._chosen is None else isolation_of(self._chosen)

    async def start(self) -> None:
        """Tries all candidates. Raises SandboxUnavailableError if none works with the required isolation."""
        if self._chosen is not None:
            return
        self.refusals = {}
        for name in self._order:
            try:
                backend = _make_named(name, self._options.get(name, {}))
            except (SandboxUnavailableError, MissingDependencyError) as cause:
                self.refusals[name] = str(cause)
                continue
            if isolation_of(backend) < self._at_least:
                self.refusals[name] = f"isolates by {_format_level(isolation_of(backend))} only"
                continue
            if name == "local" and os.geteuid() == 0:
                self.refusals[name] = (
                    "would run the code as root, got user 0; use another user, or name the backend local if you trust "
                    "the code with this machine"
                )
                continue
            try:
                await _prove_backend(backend)
            except AgenticError as cause:
                self.refusals[name] = str(cause)
                continue
            self._chosen = backend
            level = logging.WARNING if name == "local" and self.refusals else logging.INFO
            _logger.log(level, "sandbox backend %s; refused: %s", name, self.refusals or "none")
            return
        reasons = "; ".join(f"{name}: {reason}" for name, reason in self.refusals.items())
        raise SandboxUnavailableError(
            f"no sandbox backend here isolates by {_format_level(self._at_least)} or better, got {reasons}; fix one of "
            "them, use the backend remote, or, for code that you trust, name the backend local and set at_least=none"
        )

    async def create(self, *, trees: Sequence[Tree] = (), image: str | None = None) -> Sandbox:
        """Makes a sandbox of the chosen backend; see `Backend.create`."""
        if self._chosen is None:
            raise SandboxError("the backend is not started, got a call of create; await start() first")
        return await self._chosen.create(trees=trees, image=image)

    async def close(self) -> None:
        if self._chosen is not None:
            await self._chosen.close()
            self._chosen = None


def make_backend(name: str, *, at_least: Isolation | str | None = None, **options: Any) -> Backend:
    """Returns a backend, not yet started.

    Args:
        name: `namespaces`, `docker`, `landlock`, `remote`, `local`, a provider of `ELSEWHERE`, or `auto`.
        at_least: minimum isolation; None as in `required`.
        options: fields of the backend's configuration; with `auto`, of each backend by its name.

    Raises:
        ConfigError: the backend or an option is unknown, or the backend isolates less than `at_least`.
    """
    level = required(name, at_least)
    if name == "auto":
        unknown = set(options) - set(AUTO_ORDER)
        if unknown:
            raise ConfigError(f"options of auto are those of {', '.join(AUTO_ORDER)}, got {', '.join(sorted(unknown))}")
        for name, backend_options in options.items():
            with contextlib.suppress(SandboxUnavailableError, MissingDependencyError):
                _make_named(name, backend_options)  # finds misspelt options now, also those of untested backends
        return AutoBackend(at_least=level, options=options)
    if name == "remote":
        # Only the service knows its isolation, so `start` asks for it.
        return _make_named(name, {**options, "at_least": level.name.lower()})
    backend = _make_named(name, options)
    if isolation_of(backend) < level:
        raise ConfigError(
            f"the backend {name} isolates by {_format_level(isolation_of(backend))}, got "
            f"at_least={_format_level(level)}; name a stronger backend, or allow the weaker one with at_least"
        )
    return backend


def required(name: str, at_least: Isolation | str | None) -> Isolation:
    """Returns the minimum isolation; None: the default for `auto`, else any. Raises ConfigError for unknown levels."""
    if at_least is None:
        return DEFAULT_ISOLATION if name == "auto" else Isolation.NONE
    return Isolation.parse(at_least)


def isolation_of(backend: Backend) -> Isolation:
    """Returns how a backend isolates."""
    level = getattr(backend, "isolation", None)
    return _ISOLATION.get(backend.name, Isolation.NONE) if level is None else Isolation.parse(level)


async def probe(name: str, **options: Any) -> BackendProbe:
    """Starts a backend, runs code in it twice, closes it, and returns the result."""
    isolation = _format_level(_ISOLATION.get(name, Isolation.NONE))
    try:
        backend = _make_named(name, options)
        isolation = _format_level(isolation_of(backend))
        start_ms, run_ms = await _prove_backend(backend)
    except AgenticError as cause:
        return BackendProbe(name=name, isolation=isolation, refusal=str(cause))
    await backend.close()
    return BackendProbe(name=name, isolation=_format_level(isolation_of(backend)), start_ms=start_ms, run_ms=run_ms)


async def probe_all() -> list[BackendProbe]:
    """Tests each backend; `remote` only if `VERL_AGENTIC_SANDBOX_URL` names a service."""
    options: dict[str, dict[str, Any]] = {name: {} for name in AUTO_ORDER[:-1]} | {"local": {"is_trusted": True}}
    if os.environ.get("VERL_AGENTIC_SANDBOX_URL"):
        options["remote"] = {}
    return [await probe(name, **backend_options) for name, backend_options in options.items()]


async def _prove_backend(backend: Backend) -> tuple[float, float]:
    """Starts a backend and runs code in it; returns the times to the first and of the second result, in ms.

    Raises:
        SandboxError: it does not work; it is closed.
        ConfigError: a requirement is missing; it is closed.
    """
    try:
        return await asyncio.wait_for(_start_and_run(backend), _PROBE_TIMEOUT_S)
    except BaseException as cause:
        await backend.close()
        if isinstance(cause, asyncio.TimeoutError):
            raise SandboxUnavailableError(f"gave no result in {_PROBE_TIMEOUT_S:g} s; is the machine busy?") from cause
        raise


async def _start_and_run(backend: Backend) -> tuple[float, float]:
    marks = [time.monotonic()]
    with boundary(SandboxUnavailableError, f"starting the backend {backend.name}"):
        await backend.start()
        sandbox = await backend.create()
        try:
            for _ in range(2):
                result = await sandbox.run(Command(code="print(6 * 7)"), limits=Limits(), fresh=True)
                if result.stdout != "42\n":
                    raise SandboxUnavailableError(f"print(6 * 7) must give 42, got {result}")
                marks.append(time.monotonic())
        finally:
            await sandbox.close()
    return 1000 * (marks[1] - marks[0]), 1000 * (marks[2] - marks[1])


def _make_named(name: str, options: Mapping[str, Any]) -> Backend:
    if name not in _MAKERS:
        raise ConfigError(f"a sandbox backend is one of {', '.join(NAMES)}, got {name!r}")
    return _MAKERS[name](options)


def _make_local(options: Mapping[str, Any]) -> Backend:
    from verl_agentic.sandbox.local.local_backend import LocalBackend

    return LocalBackend(**check_options(LocalBackend, options, what="the backend local"))


def _make_namespaces(options: Mapping[str, Any]) -> Backend:
    from verl_agentic.sandbox.boxes.namespaces_backend import NamespaceBackend, NamespaceConfig

    return NamespaceBackend(read_settings(NamespaceConfig, options, section="namespaces"))


def _make_landlock(options: Mapping[str, Any]) -> Backend:
    from verl_agentic.sandbox.boxes.landlock_backend import LandlockBackend, LandlockConfig

    return LandlockBackend(read_settings(LandlockConfig, options, section="landlock"))


def _make_docker(options: Mapping[str, Any]) -> Backend:
    try:
        from verl_agentic.sandbox.docker.docker_backend import DockerBackend, DockerConfig
    except ImportError as cause:
        if isinstance(cause, AgenticError):
            raise
        raise SandboxUnavailableError(f"the backend docker cannot be imported, got {cause}") from cause

    return DockerBackend(read_settings(DockerConfig, options, section="docker"))


def _make_remote(options: Mapping[str, Any]) -> Backend:
    from verl_agentic.sandbox.run_code.remote_backend import RemoteBackend, RemoteConfig

    return RemoteBackend(read_settings(RemoteConfig, options, section="remote"))


def _make_elsewhere(name: str, options: Mapping[str, Any]) -> Backend:
    from verl_agentic.sandbox.elsewhere.elsewhere_backend import ElsewhereBackend
    from verl_agentic.sandbox.elsewhere.providers import PROVIDERS

    make, config = PROVIDERS[name]
    settings = read_settings(config, options, section=name)
    return ElsewhereBackend(make(settings), settings)


_MAKERS: dict[str, Callable[[Mapping[str, Any]], Backend]] = {
    "local": _make_local,
    "landlock": _make_landlock,
    "namespaces": _make_namespaces,
    "docker": _make_docker,
    "remote": _make_remote,
    **{name: functools.partial(_make_elsewhere, name) for name in ELSEWHERE},
}


def _format_level(level: Isolation) -> str:
    return level.name.lower()
