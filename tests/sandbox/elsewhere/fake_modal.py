"""A fake of Modal's library at its seam. Modal speaks gRPC, of which a fake server would repeat the whole library."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from fake_cloud import FakeCloud


class _Error(Exception):
    """Base of Modal's errors."""


NotFoundError = type("NotFoundError", (_Error,), {})
ResourceExhaustedError = type("ResourceExhaustedError", (_Error,), {})
ServiceError = type("ServiceError", (_Error,), {})
AuthError = type("AuthError", (_Error,), {})
_ERRORS: dict[int, Any] = {429: ResourceExhaustedError, 500: ServiceError, 401: AuthError}


def fake_modal(cloud: FakeCloud) -> Any:
    """Returns what the backend uses of the module `modal`."""

    def check(what: str) -> None:
        fault = cloud.fault(what)
        if fault is not None:
            raise _ERRORS[fault.status]("injected")

    async def lookup(name: str, *, create_if_missing: bool = False) -> str:
        check("App.lookup")
        return name

    async def create(**options: Any) -> Any:
        check("Sandbox.create")
        await asyncio.sleep(cloud.start_delay_s)
        return _sandbox(cloud, cloud.order(options), check)

    return SimpleNamespace(
        App=SimpleNamespace(lookup=_both(lookup)),
        Image=SimpleNamespace(from_registry=lambda tag: tag),
        Sandbox=SimpleNamespace(create=_both(create)),
    )


def _sandbox(cloud: FakeCloud, name: str, check: Callable[[str], None]) -> Any:
    async def execute(*argv: str, timeout: int | None = None) -> Any:
        check("call of Sandbox.exec")
        if name not in cloud.machines:
            raise NotFoundError("the sandbox has ended")
        assert sum(map(len, argv)) <= 2**16
        return _Process(cloud, name, argv, check)

    async def terminate() -> None:
        check("Sandbox.terminate")
        cloud.remove(name)

    return SimpleNamespace(exec=_both(execute), terminate=_both(terminate))


class _Process:
    """A `ContainerProcess`."""

    def __init__(self, cloud: FakeCloud, name: str, argv: tuple[str, ...], check: Callable[[str], None]) -> None:
        self._cloud, self._name, self._argv, self._stdin = cloud, name, argv, bytearray()
        self._check = check
        self._done: Any = None
        self.stdin = SimpleNamespace(write=self._write, write_eof=lambda: None, drain=_both(self._drain))
        self.stdout = SimpleNamespace(read=_both(lambda: self._part(1)))
        self.stderr = SimpleNamespace(read=_both(lambda: self._part(2)))
        self.wait = _both(lambda: self._part(0))

    def _write(self, data: bytes) -> None:
        self._stdin += data

    async def _drain(self) -> None: ...

    async def _part(self, number: int) -> Any:
        if self._done is None:
            code, stdout, stderr = await self._cloud.machines[self._name].run(self._argv, bytes(self._stdin))
            self._done = code, stdout.decode(), stderr.decode()
            self._check("answer of Sandbox.exec")
        return self._done[number]


def _both(function: Callable[..., Any]) -> Any:
    """Returns a callable with `aio`, as the library's are."""
    return SimpleNamespace(aio=function)
