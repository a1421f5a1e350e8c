"""The backend `daytona`: containers of Daytona, in its cloud or in your own (`DAYTONA_API_URL`)."""

from __future__ import annotations

import importlib
import math
import shlex
from collections.abc import Sequence
from typing import Any

from verl_agentic.base.env_card import needs_extra
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import setting
from verl_agentic.sandbox.elsewhere.machines import ElsewhereConfig, Executed


class DaytonaConfig(ElsewhereConfig):
    """Machines of the backend `daytona`."""

    snapshot: str | None = None
    """Snapshot of Daytona that machines begin with; None for the default one. With `image`, leave it out."""
    image: str | None = None
    """Image of a registry instead of a snapshot; Daytona builds a snapshot of it at first."""
    cpus: int | None = setting(None, min=1)
    """Processors of a machine with an image; None for Daytona's default."""
    memory_gb: int | None = setting(None, min=1)
    """Memory of a machine with an image, in GiB; None for Daytona's default."""

    def check_together(self) -> None:
        if self.snapshot is not None and self.image is not None:
            raise ConfigError(f"image and snapshot exclude each other, got {self.image!r} and {self.snapshot!r}")
        if self.image is None and (self.cpus or self.memory_gb):
            raise ConfigError(
                f"cpus and memory_gb need an image, got cpus={self.cpus}, memory_gb={self.memory_gb} with a snapshot, "
                "which has its own; name an image, or make a snapshot of that size"
            )


class DaytonaProvider:
    """Makes machines of Daytona (`machines.Provider`)."""

    name = "daytona"
    library = "daytona"
    isolation = "container"
    key_variables = ("DAYTONA_API_KEY",)
    has_images = True

    def __init__(self, config: DaytonaConfig) -> None:
        self._config = config

    async def start(self) -> None:
        """Makes the client."""
        with needs_extra("daytona", what="the backend daytona"):
            self._library: Any = importlib.import_module(self.library)
        self._client = self._library.AsyncDaytona()

    async def create(self, image: str | None) -> DaytonaMachine:
        """Makes a machine that stops and disappears at the end of the lease, and when it is stopped before."""
        config, library = self._config, self._library
        lease_minutes = math.ceil(config.lease_s / 60)
        options: dict[str, Any] = {
            "os_user": "root",
            "labels": {"verl_agentic": "sandbox"},
            "ephemeral": True,
            "auto_stop_interval": lease_minutes,
            "ttl_minutes": lease_minutes,
            "network_block_all": not config.network,
        }
        chosen = image or config.image
        if chosen is None:
            params = library.CreateSandboxFromSnapshotParams(snapshot=config.snapshot, **options)
        else:
            resources = library.Resources(cpu=config.cpus, memory=config.memory_gb)
            params = library.CreateSandboxFromImageParams(image=chosen, resources=resources, **options)
        return DaytonaMachine(await self._client.create(params, timeout=config.start_s))

    def read_error(self, error: Exception) -> tuple[int | None, Any]:
        """Returns the status and `Retry-After` of an error."""
        headers = {name.lower(): value for name, value in (getattr(error, "headers", None) or {}).items()}
        status = getattr(error, "status_code", None)
        if status is None and isinstance(error, self._library.DaytonaBadRequestError):
            status = 400  # refused by the library before a request
        return status, headers.get("retry-after")

    async def close(self) -> None:
        """Closes the client."""
        await self._client.close()


class DaytonaMachine:
    """A machine of Daytona (`machines.Machine`)."""

    def __init__(self, sandbox: Any) -> None:
        self._sandbox = sandbox

    async def execute(self, argv: Sequence[str], *, timeout_s: int) -> Executed:
        """Runs a program; the output has both streams."""
        response = await self._sandbox.process.exec(shlex.join(argv), timeout=timeout_s)
        return Executed(int(response.exit_code), response.result)

    async def write(self, path: str, data: bytes) -> None:
        """Writes a file."""
        await self._sandbox.fs.upload_file(data, path)

    async def remove(self) -> None:
        """Removes the machine."""
        await self._sandbox.delete()
