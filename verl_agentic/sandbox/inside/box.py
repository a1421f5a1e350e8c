"""A box: process 1 of a sandbox. It runs the trainer's requests one at a time and trusts no code.

The box ends when the trainer's end of the connection closes or the trainer dies. The kernel then ends everything in its
namespace.

Programs are forked from it and inherit its memory. So inputs and outputs of an execution are kept outside of the heap
and dropped with the answer (`memory`); the next program cannot find them.
"""

from __future__ import annotations

import contextlib
import functools
import marshal
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from . import child, disk_use, files, frames, processes, rootfs, syscalls, take_tree
from .box_trees import BoxTrees
from .kept_output import Output
from .program import Program
from .session import ProcessSession, fork

_USER = 1000
_OUTPUTS_BYTES = 64 * 2**20
_MAX_ROUNDS = 100
_IDLE_LOOK_S = 0.5
_MAX_NUMBER = 32
_WRITTEN, _MAX_PROBLEM = b"\0", 1000
if TYPE_CHECKING:  # a container's Python may be one that cannot subscript it
    Mounts = Sequence[Callable[[], None]]
    Answer = tuple[dict[str, Any], Iterable[bytes | memoryview]]


class Box:
    """The state of process 1."""

    def __init__(
        self, connection: frames.Connection, setup: dict[str, Any], *, proc: int | None = None, shared: int = -1
    ) -> None:
        """Takes the connection, the trainer's configuration, a writable `/proc` if the visible one is read-only, and
        the folder of shared trees, if there is one.
        """
        self._connection = connection
        self._setup = setup
        self._station = child.Station(
            user=_USER if setup["change_user"] else None,
            has_group=setup.get("has_groups", True),
            proc=proc,
            ready=os.pipe(),
        )
        os.set_blocking(self._station.ready[0], False)
        self._outputs = Output(), Output()
        self._own_mounts = rootfs.own_mounts(disk_mb=setup["disk_mb"])
        self._staged_mounts = rootfs.own_mounts(disk_mb=setup["disk_mb"], is_staged=True)
        self._operations: dict[str, Callable[[dict[str, Any], memoryview], Answer]] = {
            "run": self._run_program,
            "open": self._open_session,
            "call": self._call_session,
            "close": self._close_session,
            "put": self._put_files,
            "tree": self._add_tree,
            "take": self._take_tree,
            "snapshot": self._take_snapshot,
            "reset": self._reset_folders,
        }
        self._sessions: dict[int, ProcessSession] = {}
        self._num_sessions = 0
        self._num_snapshots = 0
        self._snapshots = -1
        self._last_pid = -1
        if proc is not None:
            with contextlib.suppress(OSError):  # a kernel without checkpoints
                self._last_pid = os.open("sys/kernel/ns_last_pid", os.O_RDWR | os.O_CLOEXEC, dir_fd=proc)
        self._trees = BoxTrees(disk_mb=setup["disk_mb"], shared=shared)
        child.prepare(setup["env"])

    def serve(self) -> None:
        """Answers requests until the trainer's end is closed."""
        with contextlib.suppress(frames.FrameError):
            while True:
                self._work_while_idle()
                self._answer_one()

    def _work_while_idle(self) -> None:
        """Ends sessions whose programs exceed their limits until the next request comes."""
        while any(session.is_limited for session in self._sessions.values()):
            if self._connection.is_ready(within_s=_IDLE_LOOK_S):
                return
            for number in [number for number, session in self._sessions.items() if session.exceeds()]:
                self._close_session({"session": number}, memoryview(b""))

    def _answer_one(self) -> None:
        request, blob = self._connection.receive()
        try:
            answer, data = self._operations[request["op"]](request, blob)
        except files.BadPathError as error:
            answer, data = {"bad_path": str(error)}, ()
        self._connection.send(answer, *data)
        self._connection.forget()
        for output in self._outputs:
            output.forget()

    def _run_program(self, request: dict[str, Any], blob: memoryview) -> Answer:
        """Runs a program to its end; the answer's blob is stdout, stderr and the requested files."""
        if not request["fresh"]:
            return self._execute_program(request, blob, namespaces=0, mounts=(), work=self._station.root)
        with self._sessions_paused():  # processes of the same user could reach into other programs
            return self._run_fresh(request, blob)

    @contextlib.contextmanager
    def _sessions_paused(self) -> Iterator[None]:
        if self._sessions:
            self._signal_all(signal.SIGSTOP)
        try:
            yield
        finally:
            if self._sessions:
                self._signal_all(signal.SIGCONT)

    def _run_fresh(self, request: dict[str, Any], blob: memoryview) -> Answer:
        if not self._setup["may_mount"]:
            answer = self._execute_program(request, blob, namespaces=0, mounts=(), work=files.WORK)
            self._reset_folders({"snapshot": None}, memoryview(b""))
            return answer
        namespaces = syscalls.NEWNS | syscalls.NEWIPC
        has_outputs, proc = bool(request["outputs"]), ()
        if self._sessions:  # programs of the same user, and sockets with names
            uses_network = self._setup["network"] and request["limits"]["network"]
            namespaces |= syscalls.NEWPID | (0 if uses_network else syscalls.NEWNET)
            proc = (rootfs.proc_mount(),)
        work = rootfs.stage(disk_mb=self._setup["disk_mb"]) if has_outputs else files.WORK
        mounts = (*(self._staged_mounts if has_outputs else self._own_mounts), *proc)
        try:
            with self._last_pid_kept():
                return self._execute_program(request, blob, namespaces=namespaces, mounts=mounts, work=work)
        finally:
            if isinstance(work, int):
                rootfs.unstage(work)

    @contextlib.contextmanager
    def _last_pid_kept(self) -> Iterator[None]:
        """Continues to count processes as if none had been started meanwhile, because a number could be a message."""
        if self._last_pid < 0:
            yield
            return
        number = os.pread(self._last_pid, _MAX_NUMBER, 0)
        try:
            yield
        finally:
            os.pwrite(self._last_pid, number, 0)

    def _execute_program(
        self,
        request: dict[str, Any],
        blob: memoryview,
        *,
        namespaces: int,
        mounts: Mounts,
        work: int | str,
        station: child.Station | None = None,
    ) -> Answer:
        """Runs a program in new namespaces and mounts; its files are then read from `work`. Default `station`: the
        box's.
        """
        namespaces |= self._network_of(request)
        try:
            program = Program(
                request,
                blob,
                namespaces=namespaces,
                mounts=mounts,
                station=station or self._station,
                outputs=self._outputs,
                trainer=self._connection.reading,
            )
        except BlockingIOError as error:
            return _not_started(f"no process could be started: {error.strerror}\n".encode())
        result = program.finish()
        self._kill_strays()
        outputs = [piece for output in self._outputs for piece in output.pieces]
        if not request["outputs"] or "error" in result:
            return result, outputs
        result["files"], contents = files.read(work, request["outputs"], limit=_OUTPUTS_BYTES)
        return result, (*outputs, contents)

    def _network_of(self, request: dict[str, Any]) -> int:
        """Returns the flag for an empty network if the box has the host's and the code must not use it. Otherwise code
        could reach the host's abstract Unix sockets.
        """
        has_network = self._setup.get("network") and self._setup["may_mount"]
        return syscalls.NEWNET if has_network and not request["limits"]["network"] else 0

    def _signal_all(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, number)  # all at once: no fork can escape it

    def _open_session(self, request: dict[str, Any], blob: memoryview) -> Answer:
        self._num_sessions += 1
        start = functools.partial(fork, request, station=self._station, namespaces=self._network_of(request))
        limit = None if self._station.has_group else request["limits"]["memory_bytes"]
        with contextlib.suppress(BlockingIOError):  # too many processes run: returns an ended session
            self._sessions[self._num_sessions] = ProcessSession(
                start, trainer=self._connection.reading, memory_bytes=limit, disk=self._station.disk
            )
        return {"session": self._num_sessions}, ()

    def _call_session(self, request: dict[str, Any], blob: memoryview) -> Answer:
        session = self._sessions.get(request["session"])
        if session is None:
            return {"ended": True}, ()
        result = session.call(bytes(blob), wall_s=request["wall_s"], output_bytes=request["output_bytes"])
        if session.has_ended:
            self._close_session(request, blob)
        return result, (session.stdout, session.stderr)

    def _close_session(self, request: dict[str, Any], blob: memoryview) -> Answer:
        session = self._sessions.pop(request["session"], None)
        if session is not None:
            session.end()
            self._kill_strays()
        return {}, ()

    def _put_files(self, request: dict[str, Any], blob: memoryview) -> Answer:
        """Writes files in a forked process, so that their names never enter the heap that programs inherit."""
        return {"problem": self._write_in_fork(self._station.root, request, blob)}, ()

    def _write_in_fork(self, root: int | str, request: dict[str, Any], blob: memoryview) -> str:
        """Returns why files could not be written; empty if they were."""
        with self._sessions_paused():  # processes of the same user could stop the one that writes
            reading, writing = os.pipe()
            try:
                pid = os.fork()
            except BlockingIOError as error:
                os.close(reading)
                os.close(writing)
                return f"no process could be started: {error.strerror}"
            if pid == 0:
                _write_tree(root, blob, request["body_size"], station=self._station, report=writing)
            os.close(writing)
            with open(reading, "rb") as report:
                message = report.read()
            os.waitpid(pid, 0)
        return "" if message == _WRITTEN else message.decode(errors="replace") or "its process died"

    def _add_tree(self, request: dict[str, Any], blob: memoryview) -> Answer:
        """Adds a tree that the box begins with. `keeps` says whether a reset restores it."""
        place = files.make_folders(self._station.root, request["at"], user=self._station.user)
        try:
            return self._place_tree(place, request, blob)
        finally:
            os.close(place)

    def _place_tree(self, place: int, request: dict[str, Any], blob: memoryview) -> Answer:
        if "shared" in request:
            self._trees.mount(self._trees.share(request["at"], request["shared"]))
            return {"problem": "", "keeps": True}, ()
        if not self._setup["may_mount"]:
            return {"problem": self._write_in_fork(place, request, blob)}, ()
        tree = self._trees.add(request["at"], is_read_only=request["read_only"], user=self._station.user)
        problem = self._write_in_fork(tree.lower, request, blob)
        if not problem:
            self._trees.mount(tree)
        return {"problem": problem, "keeps": True}, ()

    def _take_tree(self, request: dict[str, Any], blob: memoryview) -> Answer:
        """Reads a tree; the answer's blob is the contents of its files."""
        limits = {name: request[name] for name in ("max_bytes", "max_files")}
        tree = take_tree.take(self._station.root, request["at"], **limits)
        return {"taken": tree.files, "skipped": tree.skipped}, (tree.contents,)

    def _take_snapshot(self, request: dict[str, Any], blob: memoryview) -> Answer:
        """Copies the working folder to a place without a path, so that code of the same user cannot change it."""
        self._end_all()
        if self._snapshots < 0:
            self._snapshots = rootfs.make_hidden(megabytes=4 * self._setup["disk_mb"], mode=0o700)
        place = self._snapshot_path(self._num_snapshots + 1)
        try:
            files.copy_tree(files.WORK, place)
        except OSError as error:
            files.empty(place)
            os.rmdir(place)
            return {"refused": f"the working folder could not be kept, got {error}"}, ()
        self._num_snapshots += 1
        return {"snapshot": self._num_snapshots}, ()

    def _reset_folders(self, request: dict[str, Any], blob: memoryview) -> Answer:
        """Empties all writable folders and restores the snapshot, if one is given."""
        number = request["snapshot"]
        if number is not None and not 1 <= number <= self._num_snapshots:
            return {"bad_path": f"snapshots 1 to {self._num_snapshots} are there, got {number}"}, ()
        self._end_all()
        if self._setup["may_mount"]:
            rootfs.unmount_own()
            for mount in self._own_mounts:
                mount()
        else:
            for folder in rootfs.OWN_MOUNTS:
                files.empty(folder)
        if number is not None:
            files.copy_tree(self._snapshot_path(number), files.WORK)
        self._trees.mount_all(is_snapshot=number is not None)
        return {}, ()

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
        """Kills all processes except this one, the sessions and their children.

        Returns False if processes multiply too fast; then the sessions are also ended.
        """
        for _ in range(_MAX_ROUNDS if self._sessions else 0):
            strays = processes.all_but({session.pid for session in self._sessions.values()})
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
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)  # all at once: no fork can escape it
            processes.reap_all()
        return not had_sessions


def _write_tree(root: int | str, blob: memoryview, body_size: int, *, station: child.Station, report: int) -> None:
    """Writes the files of a tree and reports the outcome; never returns."""
    message = _WRITTEN
    try:
        entries = marshal.loads(blob[:body_size])["files"]
        files.write(root, entries, blob[body_size:], user=station.user)
        if station.disk is not None and disk_use.is_full(station.disk):
            message = b"more than the disk space of the sandbox"
    except BaseException as error:
        # Caused by the code or the caller: a full disk, a link or a folder in the way, an invalid name.
        message = f"{type(error).__name__}: {error}".encode(errors="replace")[:_MAX_PROBLEM]
    finally:
        os.write(report, message)
        os._exit(0)


def _not_started(reason: bytes) -> Answer:
    """Returns the answer for a program that could not start because running code uses up the limits."""
    nothing = {"stdout_size": 0, "stdout_truncated": False, "stderr_truncated": False, "timed_out": False, "oom": False}
    used = {"wall_s": 0.0, "cpu_s": 0.0, "peak_memory_kb": 0}
    return {"exit_code": 1, "stderr_size": len(reason), **nothing, **used}, (reason,)
