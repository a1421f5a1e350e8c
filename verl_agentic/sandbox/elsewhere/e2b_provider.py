"""The backend `e2b`: microVMs of E2B, in its cloud or in your own.

The address is that of E2B's library: `E2B_DOMAIN`, or `E2B_API_URL` and `E2B_SANDBOX_URL`.
"""

from __future__ import annotations

import importlib
import shlex
import uuid
from collections.abc import Sequence
from typing import Any

from verl_agentic.base.env_card import needs_extra
from verl_agentic.sandbox.elsewhere.machines import ElsewhereConfig, Executed

_ROOT = "root"


class E2BConfig(ElsewhereConfig):
    """Machines of the backend `e2b`. Processors and memory are those of the template."""

    template: str = "base"
    """Name or id of the template."""


class E2BProvider:
    """Makes machines of E2B (`machines.Provider`)."""

    name = "e2b"
    library = "e2b"
    isolation = "own_kernel"
    key_variables = ("E2B_API_KEY",)
    has_images = False

    def __init__(self, config: E2BConfig) -> None:
        self._config = config

    async def start(self) -> None:
        """Imports the library."""
        with needs_extra("e2b", what="the backend e2b"):
            self._library: Any = importlib.import_module(self.library)

    async def create(self, image: str | None) -> E2BMachine:
        """Makes a machine. E2B's library repeats overloaded requests itself, under one key."""
        sandbox = await self._library.AsyncSandbox.create(
            template=self._config.template,
            timeout=self._config.lease_s,
            allow_internet_access=self._config.network,
            metadata={"verl_agentic": "sandbox"},
            idempotency_key=str(uuid.uuid4()),
            retries=self._config.max_attempts,
            request_timeout=self._config.start_s,
        )
        return E2BMachine(sandbox, self._library)

    def read_error(self, error: Exception) -> tuple[int | None, Any]:
        """Returns the status; the library keeps no `Retry-After`."""
        library = self._library
        kinds: list[tuple[Any, int]] = [
            (library.AuthenticationException, 401),
            (library.SandboxNotRunningException, 404),
            (library.NotFoundException, 404),
            (library.InvalidArgumentException, 400),
            (library.TimeoutException, 408),
        ]
        listed_status = next((status for kind, status in kinds if isinstance(error, kind)), None)
        return listed_status or getattr(error, "status_code", None), None

    async def close(self) -> None:
        """Does nothing: the library shares its connections."""


class E2BMachine:
    """A machine of E2B (`machines.Machine`)."""

    def __init__(self, sandbox: Any, library: Any) -> None:
        self._sandbox, self._library = sandbox, library

    async def execute(self, argv: Sequence[str], *, timeout_s: int) -> Executed:
        """Runs a program as root."""
        try:
            result = await self._sandbox.commands.run(shlex.join(argv), user=_ROOT, timeout=timeout_s)
        except self._library.CommandExitException as error:
            return Executed(error.exit_code, error.stdout + error.stderr)
        return Executed(result.exit_code, result.stdout)

    async def write(self, path: str, data: bytes) -> None:
        """Writes a file as root."""
        await self._sandbox.files.write(path, data, user=_ROOT)

    async def remove(self) -> None:
        """Removes the machine."""
        await self._sandbox.kill()
