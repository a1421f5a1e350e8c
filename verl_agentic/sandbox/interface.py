"""Interfaces of sandboxes: a command and limits in, a typed result out.

backend ──create──► sandbox ──run──► result          one place per episode; files stay between runs
                       └─open_session──► session     an interpreter or a shell that lives over many calls
pool ──run──► result                                 one execution, with fresh folders
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from verl_agentic.base.errors import ConfigError, DataError, SandboxError
from verl_agentic.base.settings import Settings, setting

SessionKind = Literal["python", "bash"]


class BadRequestError(ConfigError, DataError):
    """A sandbox cannot take a path or a size. A policy may have written it, so it is data, too."""


class SpentSandboxError(SandboxError, DataError):
    """Code has used up the sandbox, which cannot do what it is asked for; so it is the code's result, too."""


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
    """Bytes kept of stdout and of stderr each: the first half and the last half. A line `... N bytes left out ...`
    replaces the rest."""
    network: bool = False
    """True lets the code use the backend's network."""


REPOSITORY_LIMITS = Limits(
    wall_s=120.0, cpu_s=120, memory_mb=1024, processes=128, open_files=1024, file_mb=256, output_bytes=200_000
)
"""Limits that fit the test suites of repositories. Give the backend `disk_mb: 256`, too."""


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
    """Environment in addition to PATH, HOME, LANG and PYTHONDONTWRITEBYTECODE; nothing of the host's."""

    def __post_init__(self) -> None:
        if (self.code is None) == (self.argv is None):
            raise ConfigError(f"a command has either code or argv, got code={self.code!r}, argv={self.argv!r}")
        if self.argv is not None and (isinstance(self.argv, str) or not self.argv):
            raise ConfigError(f"argv is a list of at least one text, got {self.argv!r}")
        for path in (*self.files, *self.outputs):
            check_path(path)


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A folder of this machine that a sandbox begins with. It must not change while it is used."""

    source: Path
    """The folder: regular files and folders only; empty folders are left out."""
    at: str
    """Its place, a path below the working folder."""
    read_only: bool = False
    """True: code cannot change it. Only `namespaces` enforces this; elsewhere the files have no write bits. False: code
    may write all files, whatever their modes on this machine."""

    def __post_init__(self) -> None:
        check_path(self.at)


@dataclass(frozen=True, kw_only=True)
class TakenTree:
    """The files of a folder, as `Sandbox.take_tree` found them."""

    files: Mapping[str, bytes]
    """Path below the folder -> content of each regular file."""
    modes: Mapping[str, int]
    """Path -> permission bits of each file."""
    skipped: Mapping[str, str]
    """Path -> reason for each entry that was not read: `link`, `special` (a pipe, socket or device), `too large`,
    `too deep`, `too many` (the walk ended in this folder), `unreadable`, `not UTF-8`, `no folder`. The path `.` is the
    folder itself."""

    @classmethod
    def of(cls, entries: Sequence[Any], skipped: Sequence[Any], contents: bytes | memoryview) -> TakenTree:
        """Returns the tree of an answer of a box: (path, size, mode), (path, reason), and the joined contents."""
        files, offset = {}, 0
        for path, size, _ in entries:
            files[path] = bytes(contents[offset : offset + size])
            offset += size
        return cls(files=files, modes={path: mode for path, _, mode in entries}, skipped=dict(skipped))


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
        """Starts an interpreter or a shell; every call passes `wall_s` again.

        Raises:
            SpentSandboxError: code has used up the sandbox's memory.
            SandboxError: the sandbox, not the code, failed.
        """
        ...

    async def snapshot(self) -> int:
        """Saves the working folder and returns the snapshot's number; ends all sessions.

        Raises:
            SpentSandboxError: code has left too much there, or folders that are too deep.
            SandboxError: the sandbox, not the code, failed.
        """
        ...

    async def put_tree(
        self, files: Mapping[str, bytes], *, at: str = ".", modes: Mapping[str, int] | None = None
    ) -> None:
        """Writes files into the working folder, at once; files that exist are replaced.

        Args:
            files: path below `at` -> content.
            at: a path below the working folder.
            modes: path -> permission bits; by default 0o644.

        Raises:
            ConfigError: a path leaves the working folder, or the files are too large for one call.
            DataError: what code left there is in the way: a link, a folder at the place of a file, a full disk.
            SandboxError: the sandbox, not the code, failed.
        """
        ...

    async def take_tree(self, at: str = ".", *, max_bytes: int, max_files: int) -> TakenTree:
        """Reads the regular files of a folder. It follows no link, and may be called while code runs in a session.

        Args:
            at: a path below the working folder.
            max_bytes: maximum size of all files together; a file that does not fit is skipped.
            max_files: maximum number of entries: files, folders and skipped ones.

        Raises:
            ConfigError: the path leaves the working folder, or a limit is out of range.
            DataError: code has used up the sandbox's memory.
            SandboxError: the sandbox, not the code, failed.
        """
        ...

    async def reset(self, snapshot: int | None = None) -> None:
        """Restores a snapshot, or the state after `create` with its trees; ends all sessions."""
        ...

    async def close(self) -> None:
        """Ends everything in it and removes it."""
        ...


@runtime_checkable
class Lender(Protocol):
    """A pool that lends sandboxes."""

    def lease(
        self, *, trees: Sequence[Tree] = (), image: str | None = None
    ) -> contextlib.AbstractAsyncContextManager[Sandbox]:
        """Provides a fresh sandbox for a block; see `Backend.create`."""
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

    async def create(self, *, trees: Sequence[Tree] = (), image: str | None = None) -> Sandbox:
        """Makes a fresh sandbox.

        Args:
            trees: folders that it begins with; `reset` restores them. A `fresh` run does not see them.
            image: image of the container instead of the configured one; for the backend `docker`.

        Raises:
            ConfigError: the backend has no images or keeps no files, or a tree has links or special files.
            DataError: the trees need more than the disk space of the sandbox.
            SandboxError: no sandbox could be made.
        """
        ...

    async def close(self) -> None:
        """Removes all sandboxes."""
        ...


def check_path(path: str) -> None:
    """Raises BadRequestError unless a path names something below the working folder."""
    if path.startswith("/") or ".." in path.split("/") or not path.strip("/."):
        raise BadRequestError(f"a path must lie below the working folder, got {path!r}; give a relative one")


def tree_entries(
    files: Mapping[str, bytes], *, at: str, modes: Mapping[str, int] | None, max_bytes: int
) -> tuple[list[list[Any]], bytes]:
    """Returns (path below the working folder, size, mode) of each file of a tree, and the joined contents.

    Raises:
        ConfigError: a path leaves the working folder, a mode is of no file, or the files are too large for one call.
    """
    check_place(at)
    modes = modes or {}
    if unknown := sorted(set(modes) - set(files)):
        raise ConfigError(f"modes are of files of the tree, got {unknown[:3]}; name files only")
    for path in files:
        check_path(path)
    size = sum(map(len, files.values()))
    if size > max_bytes:
        raise BadRequestError(f"a tree may have {max_bytes} bytes, got {size}; put it in several calls")
    entries = [[f"{at}/{path}", len(data), modes.get(path, 0o644) & 0o777] for path, data in files.items()]
    return entries, b"".join(files.values())


def check_take(at: str, *, max_bytes: int, max_files: int, highest_bytes: int) -> None:
    """Raises ConfigError for arguments of `Sandbox.take_tree` that cannot work."""
    check_place(at)
    if not 0 < max_bytes <= highest_bytes or max_files < 1:
        raise ConfigError(
            f"take_tree reads 1 to {highest_bytes} bytes and at least 1 file, got max_bytes={max_bytes}, "
            f"max_files={max_files}; read several folders instead"
        )


def check_place(at: str) -> None:
    """Raises ConfigError unless a path is the working folder (`.`) or a folder below it."""
    if at != ".":
        check_path(at)
