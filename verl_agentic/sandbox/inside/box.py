"""A box: process 1 of a sandbox. It runs what the trainer sends, one thing at a time, and trusts none of it.

The trainer's end of the connection is the box's life: when it closes, or the trainer dies, the box ends, and with
process 1 the kernel ends everything in its namespace.

Programs are forked from it and inherit its memory: what an execution brings, prints and leaves is kept apart from the
heap and dropped with the answer (`memory`), so that the next one cannot find it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from . import files, frames, processes, rootfs, syscalls
from .child import Station
from .memory import Memory
from .program import Program
from .session import Session, fork

_USER = 1000
_OUTPUTS_BYTES = 64 * 2**20
_MAX_ROUNDS = 100
if TYPE_CHECKING:  # a container's Python may be one that cannot subscript it
    Answer = tuple[dict[str, Any], bytes | list[memoryview]]


class Box:
    """What process 1 knows."""

    def __init__(self, connection: frames.Connection, setup: dict[str, Any], *, proc: int | None = None) -> None:
        """Takes the connection, what the trainer has set up, and a `/proc` to write to where the visible one cannot be
        written to."""
        self._connection = connection
        self._setup = setup
        self._station = Station(
            user=_USER if setup["change_user"] else None, has_group=setup.get("has_groups", True), proc=proc
        )
        self._sessions: dict[int, Session] = {}
        self._num_sessions = 0
        self._num_snapshots = 0
        self._snapshots = -1
        self._held: list[Memory] = []

    def serve(self) -> None:
        """Answers requests until the trainer's end is closed."""
        with contextlib.suppress(frames.FrameError):
            while True:
                self._answer_one()

    def _answer_one(self) -> None:
        operations: dict[str, Callable[[dict[str, Any], bytes], Answer]] = {
            "open": self._open,
            "call": self._call,
            "close": self._close,
            "snapshot": self._snapshot,
            "reset": self._reset,
        }
        request, memory = self._connection.receive_apart()
        self._held.append(memory)
        try:
            if request["op"] == "run":
                answer, data = self._run(request, memory.view)
            else:
                answer, data = operations[request["op"]](request, bytes(memory.view))
        except files.BadPathError as error:
            answer, data = {"bad_path": str(error)}, b""
        self._connection.send(answer, *(data if isinstance(data, list) else [data]))
        while self._held:
            self._held.pop().forget()

    def _run(self, request: dict[str, Any], blob: memoryview) -> Answer:
        """Runs a program to its end; the answer's blob is stdout, stderr and the files asked for."""
        fresh = bool(request["fresh"])
        with self._others_stopped() if fresh else contextlib.nullcontext():
            try:
                with self._work_folder(request) as work:
                    program = self._start(request, blob, is_staged=work is not None)
            except BlockingIOError as error:
                return _not_started(f"no process could be started: {error.strerror}\n".encode())
            if program.error:
                self._kill_strays()
                return {"error": program.error}, b""
            result = program.finish(trainer=self._connection.reading)
            self._kill_strays()
        self._held += [program.stdout.memory, program.stderr.memory]
        found, contents = files.read(files.WORK if work is None else work, request["outputs"], limit=_OUTPUTS_BYTES)
        self._held.append(contents)
        if work is not None:
            os.close(work)
        if fresh and not self._setup["may_mount"]:
            self._reset({"snapshot": None}, b"")
        size = sum(size for _, size in found)
        return {**result, "files": found}, [program.stdout.kept, program.stderr.kept, contents.view[:size]]

    def _start(self, request: dict[str, Any], blob: memoryview, *, is_staged: bool) -> Program:
        is_private = bool(request["fresh"]) and self._setup["may_mount"]
        body, stdin = request["body_size"], request["stdin_size"]
        mount = functools.partial(rootfs.mount_own, disk_mb=self._setup["disk_mb"], is_staged=is_staged)
        return Program(
            request,
            body=blob[:body],
            stdin=blob[body : body + stdin],
            contents=blob[body + stdin :],
            prepare=mount if is_private else lambda: None,
            namespaces=(syscalls.NEWNS | syscalls.NEWIPC if is_private else 0) | self._network_of(request),
            station=self._station,
        )

    def _work_folder(self, request: dict[str, Any]) -> contextlib.AbstractContextManager[int | None]:
        """Gives a descriptor of the working folder where that ends with the program and its files are asked for."""
        if request["fresh"] and request["outputs"] and self._setup["may_mount"]:
            return rootfs.staged_work(disk_mb=self._setup["disk_mb"])
        return contextlib.nullcontext()

    def _network_of(self, request: dict[str, Any]) -> int:
        """Returns the flag of an empty network of its own, where the box has the host's and the code shall have none:
        without sockets of the internet it could still reach the host's abstract Unix sockets."""
        has_network = self._setup.get("network") and self._setup["may_mount"]
        return syscalls.NEWNET if has_network and not request["limits"]["network"] else 0

    @contextlib.contextmanager
    def _others_stopped(self) -> Iterator[None]:
        """Stops the sessions: they run as the same user, and could reach into a program that is none of theirs."""
        if self._sessions:
            self._signal_all(signal.SIGSTOP)
        yield
        if self._sessions:
            self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, number)  # all at once: no fork can escape it

    def _open(self, request: dict[str, Any], blob: bytes) -> Answer:
        self._num_sessions += 1
        start = functools.partial(fork, request, station=self._station, namespaces=self._network_of(request))
        limit = None if self._station.has_group else request["limits"]["memory_bytes"]
        with contextlib.suppress(BlockingIOError):  # too many processes run: a session that has ended at once
            self._sessions[self._num_sessions] = Session(start, trainer=self._connection.reading, memory_bytes=limit)
        return {"session": self._num_sessions}, b""

    def _call(self, request: dict[str, Any], blob: bytes) -> Answer:
        session = self._sessions.get(request["session"])
        if session is None:
            return {"ended": True}, b""
        result = session.call(blob, wall_s=request["wall_s"], output_bytes=request["output_bytes"])
        if session.has_ended:
            self._close(request, b"")
        return result, session.stdout + session.stderr

    def _close(self, request: dict[str, Any], blob: bytes) -> Answer:
        session = self._sessions.pop(request["session"], None)
        if session is not None:
            session.end()
            self._kill_strays()
        return {}, b""

    def _snapshot(self, request: dict[str, Any], blob: bytes) -> Answer:
        """Keeps a copy of the working folder where no path leads to: code of the same user could change it there."""
        self._end_all()
        if self._snapshots < 0:
            self._snapshots = rootfs.make_hidden(megabytes=4 * self._setup["disk_mb"], mode=0o700)
        place = self._snapshot_path(self._num_snapshots + 1)
        try:
            files.copy_tree(files.WORK, place)
        except OSError as error:
            files.empty(place)
            os.rmdir(place)
            return {"refused": f"the working folder could not be kept, got {error}"}, b""
        self._num_snapshots += 1
        return {"snapshot": self._num_snapshots}, b""

    def _reset(self, request: dict[str, Any], blob: bytes) -> Answer:
        """Empties all writable folders and puts a snapshot, if one is named, into the working folder."""
        number = request["snapshot"]
        if number is not None and not 1 <= number <= self._num_snapshots:
            return {"bad_path": f"snapshots 1 to {self._num_snapshots} are there, got {number}"}, b""
        self._end_all()
        if self._setup["may_mount"]:
            rootfs.unmount_own()
            rootfs.mount_own(disk_mb=self._setup["disk_mb"])
        else:
            for folder in rootfs.OWN_MOUNTS:
                files.empty(folder)
        if number is not None:
            files.copy_tree(self._snapshot_path(number), files.WORK)
        return {}, b""

    def _snapshot_path(self, number: int) -> str:
        return f"/proc/self/fd/{self._snapshots}/{number}"

    def _end_all(self) -> None:
        for session in self._sessions.values():
            session.end()
        self._sessions.clear()
        self._kill_strays()
        if self._setup["may_mount"]:
            processes.remove_shared_memory()

    def _kill_strays(self) -> bool:
        """Ends what a program has left running: every process but this one and the sessions with what they started.

        Returns False when processes multiply faster than they can be found; then the sessions have been ended, too.
        """
        for _ in range(_MAX_ROUNDS if self._sessions else 0):
            strays = processes.all_but({os.getpid()}, trees_of={session.pid for session in self._sessions.values()})
            if not strays:
                return True
            for pid in strays:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            processes.reap(strays)
        for session in self._sessions.values():
            session.end()
        had_sessions = bool(self._sessions)
        self._sessions.clear()
        self._signal_all(signal.SIGKILL)
        processes.reap_all()
        return not had_sessions


def _not_started(reason: bytes) -> Answer:
    """Returns the answer for a program that code which still runs here has left no room for."""
    nothing = {"stdout_size": 0, "stdout_truncated": False, "stderr_truncated": False, "timed_out": False, "oom": False}
    used = {"wall_s": 0.0, "cpu_s": 0.0, "peak_memory_kb": 0, "files": []}
    return {"exit_code": 1, "stderr_size": len(reason), **nothing, **used}, reason
