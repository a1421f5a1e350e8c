"""The interface of a provider: machines that execute programs, and the meaning of the provider's errors."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from verl_agentic.base.errors import (
    AgenticError,
    ConfigError,
    SandboxBusyError,
    SandboxError,
    SandboxUnavailableError,
)
from verl_agentic.base.settings import Settings, setting
from verl_agentic.web.http_service import read_wait_s

CHUNK_BYTES = 30_000  # Modal's limit on all arguments of a program is 64 KiB, in base64
_APPEND = "import base64, sys\nwith open(sys.argv[1], sys.argv[2]) as file: file.write(base64.b64decode(sys.argv[3]))"


class ElsewhereConfig(Settings):
    """Options of all backends whose machines belong to a provider. Keys of the API come from the environment only."""

    lease_s: int = setting(3600, min=60)
    """Life of a machine, in seconds. The provider then removes it, even if this process has died."""
    network: bool = False
    """True gives machines a network, for executions whose limits allow it."""
    disk_mb: int = setting(64, min=1)
    """Maximum size of a sandbox's files, in MiB; checked every 0.1 s."""
    imports: Sequence[str] = ("collections", "json", "math", "random", "re", "typing")
    """Modules that are loaded before the first execution."""
    python: str = "python3"
    """Python >= 3.8 of the machine, by name or path."""
    max_attempts: int = setting(6, min=1)
    """Maximum number of attempts of a request that the provider rejects, fails or does not answer."""
    start_s: float = setting(300.0, above=0)
    """Maximum time to make a machine, with attempts, in seconds."""
    deadline_s: float = setting(120.0, above=0)
    """Maximum time of a call beyond the execution's own, with attempts, in seconds."""


class Executed(NamedTuple):
    """The end of a program."""

    exit_code: int
    output: str
    """Standard output; with the error output where the provider joins them."""


class Machine(Protocol):
    """A machine of a provider. Its calls raise errors of the provider's library."""

    async def execute(self, argv: Sequence[str], *, timeout_s: int) -> Executed:
        """Runs a program as root to its end."""
        ...

    async def write(self, path: str, data: bytes) -> None:
        """Writes a file as root."""
        ...

    async def remove(self) -> None:
        """Removes the machine."""
        ...


class Provider(Protocol):
    """Makes machines."""

    name: str
    """Name of the backend."""
    library: str
    """Module of the provider's client."""
    isolation: str
    """Isolation between machines, as the provider documents it."""
    key_variables: Sequence[str]
    """Environment variables of the key."""
    has_images: bool
    """True if each machine may have an image of its own."""

    async def start(self) -> None:
        """Makes the client."""
        ...

    async def create(self, image: str | None) -> Machine:
        """Makes a machine that the provider removes after the lease."""
        ...

    def read_error(self, error: Exception) -> tuple[int | None, Any]:
        """Returns the HTTP status of an error of the library, or None if no answer came, and its `Retry-After`."""
        ...

    async def close(self) -> None:
        """Closes the client."""
        ...


async def write_in_chunks(machine: Machine, path: str, data: bytes, *, python: str, timeout_s: int) -> None:
    """Writes a file through arguments of programs, for providers whose file API has no absolute paths."""
    for start in range(0, max(len(data), 1), CHUNK_BYTES):
        chunk = base64.b64encode(data[start : start + CHUNK_BYTES]).decode()
        argv = [python, "-I", "-S", "-c", _APPEND, path, "ab" if start else "wb", chunk]
        outcome = await machine.execute(argv, timeout_s=timeout_s)
        if outcome.exit_code != 0:
            raise SandboxError(f"the machine could not write {path}, got {outcome.output[-500:]}")


class Failure(NamedTuple):
    """The meaning of an error of a provider."""

    error: AgenticError
    may_repeat: bool
    after_s: float


def failure(provider: Provider, error: Exception, *, action: str, is_new: bool) -> Failure:
    """Returns the meaning of an error.

    Args:
        action: the call, for the message.
        is_new: whether it makes a machine. Else a missing one has lost its lease.
    """
    if isinstance(error, AgenticError):
        return Failure(error, False, 0.0)
    status, header = provider.read_error(error)
    after_s = read_wait_s(header)
    message = f"{action} failed at {provider.name}, got {f'HTTP {status}, ' if status else ''}{_describe_error(error)}"
    if status in (401, 403):
        names = " and ".join(provider.key_variables) or "your credentials"
        return Failure(ConfigError(f"{message}; check {names}"), False, 0.0)
    if status == 429:
        return Failure(SandboxBusyError(f"{message}; run fewer sandboxes at once"), True, after_s)
    if status is None or status >= 500 or status == 408:
        return Failure(SandboxUnavailableError(f"{message}; see the provider's status page"), True, after_s)
    if is_new:
        return Failure(ConfigError(f"{message}; check the options of the backend"), False, 0.0)
    lost = status in (404, 409, 410)
    return Failure(SandboxError(f"{message}; {'its lease has ended' if lost else 'make a new one'}"), False, 0.0)


def missing_key(provider: Provider | type[Provider]) -> str:
    """Returns the variables of the key that the environment lacks; empty if it has them."""
    return " and ".join(name for name in provider.key_variables if not os.environ.get(name))


def _describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:500]}"
