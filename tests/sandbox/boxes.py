"""Helpers of the tests of the backends `namespaces` and `landlock`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import pytest

from verl_agentic.base.errors import SandboxUnavailableError
from verl_agentic.sandbox.boxes.namespaces_backend import NamespaceBackend
from verl_agentic.sandbox.interface import Command, Limits, Sandbox

LIMITS = Limits(wall_s=20.0)
BackendT = TypeVar("BackendT", bound=NamespaceBackend)


async def started(backend: BackendT) -> BackendT:
    """Starts the backend; skips the test where this machine cannot have it."""
    try:
        await backend.start()
    except SandboxUnavailableError as reason:
        pytest.skip(str(reason))
    return backend


async def python(sandbox: Sandbox, code: str, limits: Limits = LIMITS, *, fresh: bool = False, **options: Any) -> str:
    """Returns the output of code that must succeed; `options` are fields of `Command`."""
    result = await sandbox.run(Command(code=code, **options), limits=limits, fresh=fresh)
    assert result.ok, result
    return result.stdout


def command_line(pid: int) -> str:
    """Returns a process's arguments; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def lives(pid: int) -> bool:
    """Returns whether a process has not ended yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
