"""The backend `modal`: sandboxes of Modal, under gVisor."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from verl_agentic.base.env_card import needs_extra
from verl_agentic.base.settings import setting
from verl_agentic.sandbox.elsewhere.machines import ElsewhereConfig, Executed

# Names of Modal's errors, which are those of gRPC, and the HTTP status of the same meaning.
_STATUS = {
    "AuthError": 401,
    "PermissionDeniedError": 403,
    "InvalidError": 400,
    "ImageBuildError": 400,
    "NotFoundError": 404,
    "SandboxTimeoutError": 404,
    "SandboxTerminatedError": 404,
    "ResourceExhaustedError": 429,
}


class ModalConfig(ElsewhereConfig):
    """Machines of the backend `modal`."""

    app: str = "verl-agentic"
    """Name of the app, made if it is missing."""
    image: str = "python:3.12-slim"
    """Image of a registry; Modal builds its own of it at first."""
    cpus: float = setting(1.0, above=0)
    """Processors that a machine reserves and may use."""
    memory_mb: int = setting(1024, min=128)
    """Memory that a machine reserves and may use, in MiB."""


class ModalProvider:
    """Makes machines of Modal (`machines.Provider`)."""

    name = "modal"
    library = "modal"
    isolation = "own_kernel"
    key_variables = ("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET")
    has_images = True

    def __init__(self, config: ModalConfig) -> None:
        self._config = config

    async def start(self) -> None:
        """Finds or makes the app."""
        with needs_extra("modal", what="the backend modal"):
            self._library: Any = importlib.import_module(self.library)
        self._app = await self._library.App.lookup.aio(self._config.app, create_if_missing=True)

    async def create(self, image: str | None) -> ModalMachine:
        """Makes a machine that ends with the lease."""
        config = self._config
        sandbox = await self._library.Sandbox.create.aio(
            app=self._app,
            image=self._library.Image.from_registry(image or config.image),
            timeout=config.lease_s,
            cpu=(config.cpus, config.cpus),
            memory=(config.memory_mb, config.memory_mb),
            block_network=not config.network,
        )
        return ModalMachine(sandbox)

    def read_error(self, error: Exception) -> tuple[int | None, Any]:
        """Returns the HTTP status of the same meaning; gRPC has no `Retry-After`."""
        return next((_STATUS[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in _STATUS), None), None

    async def close(self) -> None:
        """Does nothing: the library shares its connections."""


class ModalMachine:
    """A machine of Modal (`machines.Machine`)."""

    def __init__(self, sandbox: Any) -> None:
        self._sandbox = sandbox

    async def execute(self, argv: Sequence[str], *, timeout_s: int) -> Executed:
        """Runs a program as root."""
        return await self._run_program(argv, b"", timeout_s=timeout_s)

    async def write(self, path: str, data: bytes) -> None:
        """Writes a file as root."""
        outcome = await self._run_program(["sh", "-c", 'cat >"$1"', "sh", path], data, timeout_s=600)
        if outcome.exit_code != 0:
            raise OSError(f"{path} could not be written, got {outcome.output[-500:]}")

    async def remove(self) -> None:
        """Removes the machine."""
        await self._sandbox.terminate.aio()

    async def _run_program(self, argv: Sequence[str], stdin: bytes, *, timeout_s: int) -> Executed:
        process = await self._sandbox.exec.aio(*argv, timeout=timeout_s)
        for start in range(0, len(stdin), 1 << 20):
            process.stdin.write(stdin[start : start + (1 << 20)])
            await process.stdin.drain.aio()
        process.stdin.write_eof()
        await process.stdin.drain.aio()
        output = await process.stdout.read.aio()
        exit_code = await process.wait.aio()
        return Executed(exit_code, output if exit_code == 0 else output + await process.stderr.read.aio())
