"""The trainer's end of a box: sends requests, and kills the box if it does not answer in time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from verl_agentic.base.deadlines import running_code
from verl_agentic.base.errors import DataError, SandboxError
from verl_agentic.sandbox.boxes.cgroups import ControlGroup
from verl_agentic.sandbox.inside import frames
from verl_agentic.sandbox.interface import (
    BadRequestError,
    Command,
    CommandResult,
    Limits,
    SessionKind,
    SpentSandboxError,
    TakenTree,
    Tree,
    check_take,
    tree_entries,
)
from verl_agentic.sandbox.source_trees import packed

_GRACE_S = 5.0  # time of a box beyond the program's own, on a busy machine
_HOUSEKEEPING_S = 60.0
DEFAULT_PATH = "/opt/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = {"PATH": DEFAULT_PATH, "HOME": "/work", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
_KILLED = -int(signal.SIGKILL)
_DIED_OF_MEMORY = "the sandbox has ended by the memory that its code used, got a call to it; make a new one"


class Life(Protocol):
    """The process or container of a box."""

    def kill(self) -> None:
        """Starts to end it; may be called again."""
        ...

    async def ended(self) -> None:
        """Waits until it is completely gone."""
        ...


class BoxProcess:
    """A box that is a process of this machine."""

    def __init__(self, pid: int, *, end: signal.Signals = signal.SIGKILL) -> None:
        """Takes the process; `end` is the signal that also ends everything in it."""
        self._descriptor = os.pidfd_open(pid)
        self._end = end
        self._has_ended: asyncio.Event | None = None

    def kill(self) -> None:
        """Ends the box and everything in it: the kernel does so for process 1 of a namespace, else the box itself."""
        if self._descriptor >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, self._end)

    async def ended(self) -> None:
        """Waits for the end; process 1 of a namespace is the last to go."""
        if self._descriptor < 0:
            return
        if self._has_ended is None:  # a loop has one reader for a descriptor, however many wait
            self._has_ended = asyncio.Event()
            asyncio.get_running_loop().add_reader(self._descriptor, self._let_go)
        await self._has_ended.wait()

    def _let_go(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1
        assert self._has_ended is not None
        self._has_ended.set()


class BoxClient:
    """A sandbox (`sandbox.interface.Sandbox`)."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        life: Life,
        group: ControlGroup | None = None,
        on_closed: Callable[[], None] = lambda: None,
    ) -> None:
        """Takes a connection to a box, its process or container and control group; calls `on_closed` at its end."""
        self._reader, self._writer = reader, writer
        self._life = life
        self._group = group
        self._on_closed: Callable[[], None] | None = on_closed
        self._lock = asyncio.Lock()
        self._is_broken = self._is_overdue = self._died_of_memory = False
        self._oom_kills = group.oom_kills() if group else 0
        self._initial: int | None = None  # the snapshot with the trees of a box that does not keep them itself

    @property
    def is_broken(self) -> bool:
        """True if it died or was ended during a call. It cannot be used again."""
        return self._is_broken

    @property
    def is_usable(self) -> bool:
        """True if it is alive and in its initial state."""
        has_ended = self._reader.at_eof() or self._reader.exception() is not None
        return not self._is_broken and not has_ended

    async def run(self, command: Command, *, limits: Limits, fresh: bool = False) -> CommandResult:
        """Runs a command; see `Sandbox.run`."""
        with running_code(limits.wall_s) as wall_s:
            return await self._run_command(command, limits=replace(limits, wall_s=wall_s), fresh=fresh)

    async def _run_command(self, command: Command, *, limits: Limits, fresh: bool) -> CommandResult:
        # Data that the box itself does not read goes into the blob, which stays out of its memory.
        body = frames.marshalled(
            {
                "code": command.code,
                "argv": None if command.argv is None else list(command.argv),
                "env": dict(command.env),
                "files": [[path, len(data), 0o644] for path, data in command.files.items()],
            }
        )
        request = {
            "op": "run",
            "fresh": fresh,
            "limits": _encode_limits(limits),
            "body_size": len(body),
            "stdin_size": len(command.stdin),
            "outputs": list(command.outputs),
        }
        blob = b"".join((body, command.stdin, *command.files.values()))
        if len(blob) > frames.MAX_BLOB:
            raise BadRequestError(f"code, stdin and files may have {frames.MAX_BLOB} bytes together, got {len(blob)}")
        answer, data = await self._send_request(request, blob, timeout_s=limits.wall_s + _GRACE_S, may_oom=True)
        return _decode_result(answer, data)

    async def open_session(self, kind: SessionKind, *, limits: Limits) -> BoxSession:
        request = {"op": "open", "kind": kind, "limits": _encode_limits(limits)}
        answer, _ = await self._send_request(request, may_oom=True)
        if "session" not in answer:
            raise SpentSandboxError(_DIED_OF_MEMORY)
        return BoxSession(self, answer["session"], limits)

    async def snapshot(self) -> int:
        return (await self._send_request({"op": "snapshot"}))[0]["snapshot"]

    async def put_tree(
        self, files: Mapping[str, bytes], *, at: str = ".", modes: Mapping[str, int] | None = None
    ) -> None:
        entries, contents = tree_entries(files, at=at, modes=modes, max_bytes=frames.MAX_BLOB)
        await self._put_entries({"op": "put"}, entries, contents)

    async def place(self, trees: Sequence[Tree], *, shared: Mapping[str, int] | None = None) -> None:
        """Puts trees into a new sandbox; `reset` restores them.

        Args:
            trees: folders.
            shared: place -> number, for those that the zygote has.

        Raises:
            ConfigError: a tree has links or special files, or is too large for one call.
            DataError: the trees need more than the disk space of the sandbox.
            SandboxError: the sandbox failed.
        """
        keeps = True
        for tree in trees:
            request = {"op": "tree", "at": tree.at, "read_only": tree.read_only}
            if shared and tree.at in shared:
                answer = await self._put_entries({**request, "shared": shared[tree.at]}, [], b"")
            else:
                answer = await self._put_entries(request, *await asyncio.to_thread(packed, tree))
            keeps = bool(answer.get("keeps"))
        if not keeps:
            self._initial = await self.snapshot()

    async def _put_entries(self, request: dict[str, Any], entries: list[list[Any]], contents: bytes) -> dict[str, Any]:
        body = frames.marshalled({"files": entries})
        if len(body) + len(contents) > frames.MAX_BLOB:
            raise BadRequestError(
                f"a tree may have {frames.MAX_BLOB} bytes with its paths, got {len(body) + len(contents)}; put it in "
                "several calls"
            )
        answer, _ = await self._send_request({**request, "body_size": len(body)}, body + contents, may_oom=True)
        if answer.get("problem", "no answer"):
            problem = answer.get("problem", "its memory is used up")
            raise DataError(f"the tree could not be written, got {problem}; reset the sandbox, or raise disk_mb")
        return answer

    async def take_tree(self, at: str = ".", *, max_bytes: int, max_files: int) -> TakenTree:
        check_take(at, max_bytes=max_bytes, max_files=max_files, highest_bytes=frames.MAX_BLOB)
        request = {"op": "take", "at": at, "max_bytes": max_bytes, "max_files": max_files}
        answer, contents = await self._send_request(request, may_oom=True)
        if "taken" not in answer:
            raise DataError("the tree could not be read, got a sandbox that code has filled; read less, or reset it")
        return TakenTree.of(answer["taken"], answer["skipped"], contents)

    async def reset(self, snapshot: int | None = None) -> None:
        await self._send_request({"op": "reset", "snapshot": self._initial if snapshot is None else snapshot})

    async def close(self) -> None:
        """Ends the box; the kernel ends everything in it."""
        self._is_broken = True
        self._life.kill()
        self._writer.close()
        await self._life.ended()
        on_closed, self._on_closed = self._on_closed, None
        if on_closed is not None:
            on_closed()

    async def call(self, session: int, text: str, *, wall_s: float, limits: Limits) -> tuple[dict[str, Any], bytes]:
        """Runs a piece in a session."""
        with running_code(wall_s) as allowed_s:
            request = {"op": "call", "session": session, "wall_s": allowed_s, "output_bytes": limits.output_bytes}
            blob = text.encode("utf-8", "replace")
            return await self._send_request(request, blob, timeout_s=allowed_s + _GRACE_S, may_oom=True)

    async def close_session(self, session: int) -> None:
        """Ends a session."""
        if not self._is_broken:
            with contextlib.suppress(SpentSandboxError):  # it has ended with its sandbox
                await self._send_request({"op": "close", "session": session})

    async def _send_request(
        self, request: dict[str, Any], blob: bytes = b"", *, timeout_s: float = _HOUSEKEEPING_S, may_oom: bool = False
    ) -> tuple[dict[str, Any], bytes]:
        """Sends a request and waits for the answer.

        Args:
            blob: the bytes with it.
            timeout_s: maximum time of the answer, in seconds.
            may_oom: whether code runs meanwhile, which may exhaust the memory.
        """
        async with self._lock:
            if self._died_of_memory:
                return after_death(may_oom), b""
            if self._is_broken:
                raise SandboxError("the sandbox has ended, got a call to it; make a new one")
            if self._group is not None and "limits" in request:
                limits = request["limits"]
                try:
                    self._group.limit(memory_bytes=limits["memory_bytes"], processes=limits["processes"] + 1)
                except OSError:
                    return killed_for_memory(), b""  # what the code holds here is more than it may have now
            self._is_broken = True  # until the whole answer is here: a call that is cancelled leaves half of one
            overdue = asyncio.get_running_loop().call_later(timeout_s, self._give_up)  # no task, as wait_for has one
            try:
                answer, data = await self._exchange_frames(request, blob)
            except (OSError, EOFError, frames.FrameError) as cause:
                if self._is_overdue:
                    problem = f"the sandbox gave no answer within {timeout_s:g} s; it has been ended"
                    raise SandboxError(problem) from cause
                self._life.kill()
                self._died_of_memory = self._has_oom_killed()
                if self._died_of_memory:
                    return after_death(may_oom), b""
                raise SandboxError(f"the sandbox died, got {type(cause).__name__}; make a new one") from cause
            except asyncio.CancelledError:
                self._life.kill()
                raise
            finally:
                overdue.cancel()
            if "error" in answer:
                self._life.kill()
                raise SandboxError(f"the sandbox could not do it, got {answer['error']}; make a new one")
            self._is_broken = False
        if "bad_path" in answer:
            raise BadRequestError(answer["bad_path"])
        if "refused" in answer:
            raise SpentSandboxError(f"{answer['refused']}; the sandbox is as it was")
        if may_oom and self._has_oom_killed():
            answer["oom"] = True
        return answer, data

    def _give_up(self) -> None:
        """Ends the box and fails the pending request."""
        self._is_overdue = True
        self._life.kill()
        self._writer.transport.abort()

    def _has_oom_killed(self) -> bool:
        """Returns whether the kernel killed a process for memory since the last call."""
        if self._group is None:
            return False
        before, self._oom_kills = self._oom_kills, self._group.oom_kills()
        return self._oom_kills > before

    async def _exchange_frames(self, request: dict[str, Any], blob: bytes) -> tuple[dict[str, Any], bytes]:
        self._writer.write(frames.request(request, blob))
        await self._writer.drain()
        text_size, blob_size = frames.sizes(await self._reader.readexactly(frames.HEADER_SIZE))
        answer = frames.parse(await self._reader.readexactly(text_size))
        return answer, await self._reader.readexactly(blob_size)


class BoxSession:
    """A session in a box (`sandbox.interface.SandboxSession`)."""

    def __init__(self, box: BoxClient, number: int, limits: Limits) -> None:
        self._box, self._number, self._limits = box, number, limits

    async def run(self, text: str, *, wall_s: float) -> CommandResult:
        answer, data = await self._box.call(self._number, text, wall_s=wall_s, limits=self._limits)
        if "stdout_size" not in answer:
            return CommandResult(
                stdout="", stderr="the session has ended\n", exit_code=_KILLED, timed_out=False, wall_s=0.0
            )
        return _decode_result(answer, data)

    async def close(self) -> None:
        await self._box.close_session(self._number)


def _encode_limits(limits: Limits) -> dict[str, Any]:
    return {
        "wall_s": limits.wall_s,
        "cpu_s": limits.cpu_s,
        "memory_bytes": limits.memory_mb * 2**20,
        "processes": limits.processes,
        "open_files": limits.open_files,
        "file_bytes": limits.file_mb * 2**20,
        "output_bytes": limits.output_bytes,
        "network": limits.network,
    }


def after_death(may_oom: bool) -> dict[str, Any]:
    """Returns the answer of a box that its code made die of memory: a result of the code, not a failure of the sandbox.

    Raises:
        SpentSandboxError: the request was not about code.
    """
    if not may_oom:
        raise SpentSandboxError(_DIED_OF_MEMORY)
    return killed_for_memory()


def killed_for_memory() -> dict[str, Any]:
    """Returns the answer for a box that was killed together with its program for memory."""
    nothing = dict.fromkeys(("stdout_size", "stderr_size", "wall_s", "cpu_s", "peak_memory_kb"), 0)
    flags = {"timed_out": False, "oom": True, "stdout_truncated": False, "stderr_truncated": False}
    return {"exit_code": _KILLED, **nothing, **flags}


def _decode_result(answer: dict[str, Any], data: bytes) -> CommandResult:
    stdout_end = answer["stdout_size"]
    files_start = offset = stdout_end + answer["stderr_size"]
    files = {}
    for path, size in answer.get("files", ()):
        files[path] = data[offset : offset + size]
        offset += size
    return CommandResult(
        stdout=data[:stdout_end].decode("utf-8", "replace"),
        stderr=data[stdout_end:files_start].decode("utf-8", "replace"),
        exit_code=answer["exit_code"],
        timed_out=answer["timed_out"],
        oom=answer.get("oom", False),
        stdout_truncated=answer["stdout_truncated"],
        stderr_truncated=answer["stderr_truncated"],
        wall_s=answer["wall_s"],
        cpu_s=answer["cpu_s"],
        peak_memory_mb=answer["peak_memory_kb"] / 1024,
        files=files,
    )
