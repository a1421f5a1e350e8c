"""The backend `local`: plain child processes with resource limits.

This limits accidents (endless loops, memory, output), not attacks. The code runs as the same user with the same files
and network. Use it only for trusted tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from verl_agentic.base.deadlines import running_code
from verl_agentic.base.errors import ConfigError, DataError, SandboxError, boundary
from verl_agentic.sandbox.inside import files, frames, take_tree
from verl_agentic.sandbox.interface import (
    Command,
    CommandResult,
    Limits,
    SandboxSession,
    SessionKind,
    TakenTree,
    Tree,
    check_take,
    tree_entries,
)
from verl_agentic.sandbox.lasting_threads import LastingThreads
from verl_agentic.sandbox.local.local_process import Execution
from verl_agentic.sandbox.source_trees import packed, refuse_image

_PREFIX = "sandbox_local_"
_T = TypeVar("_T")
_logger = logging.getLogger(__name__)
_has_warned = False


class LocalBackend:
    """Sandboxes that are folders of this machine; limits on memory, CPU time and files apply per process."""

    name = "local"

    def __init__(self, *, max_running: int | None = None, is_trusted: bool = False) -> None:
        """Makes the backend.

        Args:
            max_running: maximum number of processes at once; by default twice the cores.
            is_trusted: suppresses the warning for code that is known to be harmless.
        """
        self._max_running = max_running or 2 * (os.cpu_count() or 1)
        self._is_trusted = is_trusted
        self._threads: ThreadPoolExecutor | None = None
        self._base = Path()
        self._sandboxes: set[LocalSandbox] = set()

    async def start(self) -> None:
        """Makes the folder of all sandboxes; warns once per process that nothing is isolated."""
        if self._threads is not None:
            return
        if not self._is_trusted:
            _warn_once()
        await asyncio.to_thread(_remove_orphans)
        self._base = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}_"))
        self._threads = LastingThreads(self._max_running, thread_name_prefix="sandbox")

    async def create(self, *, trees: Sequence[Tree] = (), image: str | None = None) -> LocalSandbox:
        """Makes a folder with the trees; see `Backend.create`.

        Raises:
            SandboxError: the backend is not started, or the disk is full.
        """
        refuse_image(self.name, image)
        if self._threads is None:
            raise SandboxError("the backend is not started, got a call of create; await start() first")
        with boundary(SandboxError, "making a sandbox's folder"):
            folder = Path(tempfile.mkdtemp(dir=self._base))
            sandbox = LocalSandbox(folder, threads=self._threads, on_closed=self._sandboxes.discard)
        self._sandboxes.add(sandbox)
        try:
            await sandbox.place(trees)
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    async def close(self) -> None:
        if self._threads is None:
            return
        threads, self._threads = self._threads, None
        for sandbox in list(self._sandboxes):
            await sandbox.close()
        await asyncio.to_thread(threads.shutdown)
        await asyncio.to_thread(shutil.rmtree, self._base, ignore_errors=True)


class LocalSandbox:
    """A folder (`sandbox.interface.Sandbox`)."""

    def __init__(
        self, folder: Path, *, threads: ThreadPoolExecutor, on_closed: Callable[[LocalSandbox], None] = lambda _: None
    ) -> None:
        """Takes an empty folder, and threads to watch its processes."""
        self._folder, self._threads = folder, threads
        self._work = folder / "work"
        self._work.mkdir()
        self._num_snapshots = 0
        self._initial: int | None = None  # the snapshot with the trees
        self._running: set[Execution] = set()
        self._sessions: list[SandboxSession] = []
        self._on_closed = on_closed
        self._is_closed = False

    async def run(self, command: Command, *, limits: Limits, fresh: bool = False) -> CommandResult:
        with running_code(limits.wall_s) as wall_s:
            return await self._run_execution(Execution(command, replace(limits, wall_s=wall_s)), fresh=fresh)

    async def _run_execution(self, execution: Execution, *, fresh: bool) -> CommandResult:
        self._running.add(execution)
        try:
            return await self._in_thread(self._run_fresh if fresh else self._run_in_work, execution)
        except asyncio.CancelledError:
            execution.cancel()
            raise
        finally:
            self._running.discard(execution)

    async def open_session(self, kind: SessionKind, *, limits: Limits) -> SandboxSession:
        from verl_agentic.sandbox.local.local_session import LocalSession  # speaks to the kernel, as only Linux has it

        def start() -> SandboxSession:
            session = LocalSession(kind, limits, self._work, self._threads)
            self._sessions.append(session)  # here, because the call may be cancelled meanwhile
            return session

        return await self._in_thread(start)

    async def snapshot(self) -> int:
        await self._end_sessions()
        self._num_snapshots += 1
        await self._in_thread(files.copy_tree, str(self._work), str(self._snapshot_path(self._num_snapshots)))
        return self._num_snapshots

    async def put_tree(
        self, files: Mapping[str, bytes], *, at: str = ".", modes: Mapping[str, int] | None = None
    ) -> None:
        entries, contents = tree_entries(files, at=at, modes=modes, max_bytes=frames.MAX_BLOB)
        await self._in_thread(self._write_entries, entries, contents)

    async def place(self, trees: Sequence[Tree]) -> None:
        """Puts trees into a new sandbox; `reset` restores them. Raises ConfigError for links and special files."""
        for tree in trees:
            entries, contents = await asyncio.to_thread(packed, tree)
            below = [[f"{tree.at}/{path}", size, mode] for path, size, mode in entries]
            await self._in_thread(self._write_entries, below, contents)
        if trees:
            self._initial = await self.snapshot()

    async def take_tree(self, at: str = ".", *, max_bytes: int, max_files: int) -> TakenTree:
        check_take(at, max_bytes=max_bytes, max_files=max_files, highest_bytes=frames.MAX_BLOB)

        def take() -> TakenTree:
            tree = take_tree.take(str(self._work), at, max_bytes=max_bytes, max_files=max_files)
            return TakenTree.of(tree.files, tree.skipped, tree.contents)

        return await self._in_thread(take)

    async def reset(self, snapshot: int | None = None) -> None:
        if snapshot is not None and not 1 <= snapshot <= self._num_snapshots:
            raise ConfigError(f"snapshots 1 to {self._num_snapshots} are there, got {snapshot}")
        snapshot = self._initial if snapshot is None else snapshot
        await self._end_sessions()
        await self._in_thread(files.empty, str(self._work))
        if snapshot is not None:
            await self._in_thread(files.copy_tree, str(self._snapshot_path(snapshot)), str(self._work))

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        for execution in list(self._running):
            execution.cancel()
        await self._end_sessions()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        self._on_closed(self)

    def _write_entries(self, entries: list[list[Any]], contents: bytes) -> None:
        try:
            files.write(str(self._work), entries, memoryview(contents), user=None)
        except (OSError, ValueError, files.BadPathError) as cause:
            raise DataError(f"the tree could not be written, got {cause}; reset the sandbox first") from cause

    def _run_in_work(self, execution: Execution) -> CommandResult:
        return execution.run(self._work)

    def _run_fresh(self, execution: Execution) -> CommandResult:
        with tempfile.TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as folder:
            return execution.run(Path(folder))

    def _snapshot_path(self, number: int) -> Path:
        return self._folder / f"snapshot_{number}"

    async def _end_sessions(self) -> None:
        sessions, self._sessions = self._sessions, []
        for session in sessions:
            await session.close()

    async def _in_thread(self, work: Callable[..., _T], *args: object) -> _T:
        if self._is_closed:
            raise SandboxError("the sandbox is closed, got a call to it; make a new one")
        with boundary(SandboxError, "the local sandbox"):
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, *args)


def _warn_once() -> None:
    global _has_warned
    if not _has_warned:
        _has_warned = True
        _logger.warning(
            "THE SANDBOX `local` DOES NOT ISOLATE: the code runs as this user, with this machine's files and network. "
            "For code that you do not trust use the backend namespaces, docker or remote "
            "(`verl-agentic sandbox backends` shows which work here)."
        )


def _remove_orphans() -> None:
    """Removes the folders of processes that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*_*"):
        pid = folder.name.removeprefix(_PREFIX).partition("_")[0]
        with contextlib.suppress(OSError):
            if pid.isdigit() and folder.stat().st_uid == os.geteuid() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(folder, ignore_errors=True)
