"""What running untrusted code means: limits in, a typed result out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one execution may use."""

    wall_s: float = 10.0
    """Real time from the start of the process, in seconds; then it and its children are killed."""
    cpu_s: int = 10
    """CPU time, in seconds."""
    memory_mb: int = 512
    """Address space, in MiB."""
    output_bytes: int = 16_384
    """Bytes kept of stdout and of stderr each; the rest is thrown away while it streams."""


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """What an execution did. A failure of the code is a result; a failure of the sandbox is a `SandboxError`."""

    stdout: str
    stderr: str
    exit_code: int
    """Exit code, or minus the number of the signal that ended the process."""
    timed_out: bool
    truncated: bool
    """True when stdout or stderr was longer than `Limits.output_bytes`."""
    wall_s: float

    @property
    def ok(self) -> bool:
        """True when the code ran to its end without an error."""
        return self.exit_code == 0 and not self.timed_out


class Sandbox(Protocol):
    """A place where code runs."""

    async def run_python(self, code: str, *, limits: Limits) -> CommandResult:
        """Runs Python source to its end; cancelling the call kills the code.

        Raises:
            SandboxError: the sandbox, not the code, failed.
        """
        ...
