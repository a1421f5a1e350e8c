"""Interfaces of sandboxes: a command and limits in, a typed result out.

backend ──create──► sandbox ──run──► result          one place per episode; files stay between runs
                       └─open_session──► session     an interpreter or a shell that lives over many calls
pool ──run──► result                                 one execution, with fresh folders
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from verl_agentic.errors import ConfigError
from verl_agentic.settings import Settings, setting

SessionKind = Literal["python", "bash"]


@dataclass(frozen=True, kw_only=True)
class Limits(Settings):
    """Limits of one execution."""

    wall_s: float = setting(10.0, above=0)
    """Real time, in seconds; then the code and its children are killed."""
    cpu_s: int = setting(10, min=1)
    """CPU time of one process, in seconds."""
    memory_mb: int = setting(512, min=1)
    """Memory, in MiB: of all processes together with control groups, else of each."""
    processes: int = setting(64, min=1)
    """Processes and threads at one time."""
    open_files: int = setting(256, min=1)
    """Open files of one process."""
    file_mb: int = setting(64, min=1)
    """Size of one file, in MiB."""
    output_bytes: int = setting(16_384, min=1)
    """Bytes kept of stdout and of stderr each; the rest is discarded."""
    network: bool = False
    """True lets the code use the backend's network."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """Python source or a program with arguments."""

    code: str | None = None
    """Python source, run as `__main__`."""
    argv: Sequence[str] | None = None
    """A program and its arguments; found through PATH."""
    stdin: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Path below the working folder -> content, written before the start."""
    outputs: Sequence[str] = ()
    """Paths below the working folder that are read back; missing and non-regular files are left out."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment in addition to PATH, HOME and LANG; nothing of the host's."""

    def __post_init__(self) -> None:
        if (self.code is None) == (self.argv is None):
            raise ConfigError(f"a command has either code or argv, got code={self.code!r}, argv={self.argv!r}")
        if self.argv is not None and (isinstance(self.argv, str) or not self.argv):
            raise ConfigError(f"argv is a list of at least one text, got {self.argv!r}")
        for path in (*self.files, *self.outputs):
            if path.startswith("/") or ".." in path.split("/") or not path.strip("/."):
                raise ConfigError(f"a path must lie below the working folder, got {path!r}; give a relative one")


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """The result of an execution. A failure of the code is a result; a failure of the sandbox is a `SandboxError`."""

    stdout: str
    stderr: str
    exit_code: int
    """Exit code, or minus the number of the signal that ended the process."""
    timed_out: bool
    oom: bool = False
    """True if the kernel killed it for memory. With a limit per process, Python raises `MemoryError` instead."""
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    wall_s: float
    cpu_s: float = 0.0
    """CPU time of the process and the children it waited for, in seconds."""
    peak_memory_mb: float = 0.0
    """Resident memory of its largest process, in MiB."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """The requested outputs that exist."""

    @property
    def ok(self) -> bool:
        """True when the code ran to its end without an error."""
        return self.exit_code == 0 and not self.timed_out

    @property
    def truncated(self) -> bool:
        """True when an output was longer than `Limits.output_bytes`."""
        return self.stdout_truncated or self.stderr_truncated

    @property
    def signal_name(self) -> str | None:
        """Name of the signal that ended the process, or None."""
        if self.exit_code >= 0:
            return None
        try:
            return signal.Signals(-self.exit_code).name
        except ValueError:
            return f"signal {-self.exit_code}"


class Runner(Protocol):
    """A sandbox or a pool of them: runs commands."""

    async def run(self, command: Command, *, limits: Limits) -> CommandResult:
        """Runs a command to its end; over a pool with fresh folders.

        Raises:
            SandboxError: the sandbox, not the code, failed.
        """
        ...


class SandboxSession(Protocol):
    """A Python interpreter or a shell that keeps its state between calls."""

    async def run(self, text: str, *, wall_s: float) -> CommandResult:
        """Runs a piece of source or a command line. At its deadline it is killed together with the session. A call to
        an ended session returns a result with `exit_code` -9.

        Raises:
            SandboxError: the sandbox, not the code, failed.
        """
        ...

    async def close(self) -> None:
        """Ends the session and all that it started."""
        ...


class Sandbox(Protocol):
    """A place with its own file system, used by one episode."""

    async def run(self, command: Command, *, limits: Limits, fresh: bool = False) -> CommandResult:
        """Runs a command to its end; cancelling the call kills it. Files in the working folder stay.

        Args:
            fresh: runs it in new empty folders that are removed afterwards.

        Raises:
            SandboxError: the sandbox, not the code, failed.
        """
        ...

    async def open_session(self, kind: SessionKind, *, limits: Limits) -> SandboxSession:
        """Starts an interpreter or a shell; every call passes `wall_s` again."""
        ...

    async def snapshot(self) -> int:
        """Saves the working folder and returns the snapshot's number; ends all sessions."""
        ...

    async def reset(self, snapshot: int | None = None) -> None:
        """Restores a snapshot or the initial state of the working folder; ends all sessions."""
        ...

    async def close(self) -> None:
        """Ends everything in it and removes it."""
        ...


class Backend(Protocol):
    """Makes sandboxes of one kind."""

    @property
    def name(self) -> str:
        """Name in the configuration."""
        ...

    async def start(self) -> None:
        """Prepares what all sandboxes share. Raises SandboxError if it cannot work on this machine, with the reason."""
        ...

    async def create(self) -> Sandbox:
        """Makes a fresh sandbox."""
        ...

    async def close(self) -> None:
        """Removes all sandboxes."""
        ...
