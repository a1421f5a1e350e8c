"""One program from fork to exit, with limited output and a deadline."""

from __future__ import annotations

import contextlib
import marshal
import math
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from . import child, disk_use, files, memory, syscalls
from .frames import FrameError
from .kept_output import Output

_CHUNK = 65_536
_MAX_REASON = 4096
DISK_FULL = b"killed: the files take more than the disk space of the sandbox\n"
_SHORT_S = 0.01
_WATCH_S = 0.1  # interval of memory checks without a control group


class ProgramWatch:
    """Reasons to end a program: deadline, trainer's end, and memory and disk if nothing else limits them."""

    def __init__(
        self, *, deadline: float, trainer: int | None, memory_bytes: int | None, disk: disk_use.Disk | None = None
    ) -> None:
        """Takes the deadline (monotonic clock), the trainer's descriptor if any, and limits on memory and files."""
        self.is_oom = self.is_full = False
        self._deadline, self._trainer, self._memory_bytes, self._disk = deadline, trainer, memory_bytes, disk
        self._next_look = time.monotonic() + _WATCH_S
        self._poll = select.poll()  # not select(), which is limited to descriptors below 1024
        if trainer is not None:
            self._poll.register(trainer, select.POLLIN)

    def add(self, descriptor: int, *, for_writing: bool = False) -> None:
        """Waits for this one, too."""
        self._poll.register(descriptor, select.POLLOUT if for_writing else select.POLLIN)

    def remove(self, descriptor: int) -> None:
        """Waits for it no more."""
        self._poll.unregister(descriptor)

    def wait(self, *, at_most_s: float = math.inf) -> list[int] | None:
        """Returns ready descriptors; None if time, memory or disk is used up. Raises FrameError without a trainer."""
        now = time.monotonic()
        remaining_s = self._deadline - now
        if remaining_s <= 0:
            return None
        remaining_s = min(remaining_s, at_most_s)
        if self._memory_bytes is not None or self._disk is not None:
            if now >= self._next_look:
                self._next_look = now + _WATCH_S
                self.is_oom, self.is_full = is_over(self._memory_bytes, self._disk)
                if self.is_oom or self.is_full:
                    return None
            remaining_s = min(remaining_s, self._next_look - now)
        ready = [descriptor for descriptor, _ in self._poll.poll(math.ceil(remaining_s * 1000))]
        if self._trainer in ready:
            raise FrameError("the trainer has gone")
        return ready


class Program:
    """A process that runs untrusted code."""

    def __init__(
        self,
        request: dict[str, Any],
        blob: memoryview,
        *,
        namespaces: int,
        mounts: Sequence[Callable[[], None]],
        station: child.Station,
        outputs: tuple[Output, Output],
        trainer: int,
    ) -> None:
        """Forks.

        Args:
            request: limits, and the sizes of the first two parts of the blob.
            blob: data for the new process (code, argv, env, names of files), stdin, and contents of files.
            namespaces: new ones of the process.
            mounts: made while the process is still privileged.
            outputs: keep what it prints.
            trainer: descriptor that is readable when the trainer has gone.
        """
        limits, body, stdin = request["limits"], request["body_size"], request["stdin_size"]
        self._started = time.monotonic()
        self._station, self._outputs = station, outputs
        self._stdin = blob[body : body + stdin]
        stdin_read, self._stdin_pipe = os.pipe() if stdin else (os.open("/dev/null", os.O_RDONLY), -1)
        stdout, stdout_write = os.pipe()
        stderr, stderr_write = os.pipe()
        self._reading = {stdout: outputs[0], stderr: outputs[1]}
        # Works before the fork as far as possible, because writes after it copy pages.
        self._watch = ProgramWatch(
            deadline=self._started + limits["wall_s"],
            trainer=trainer,
            memory_bytes=None if station.has_group else limits["memory_bytes"],
            disk=station.disk,
        )
        for pipe, output in self._reading.items():
            os.set_blocking(pipe, False)
            output.begin(limits["output_bytes"])
        if stdin:
            os.set_blocking(self._stdin_pipe, False)
            self._feed_stdin()
        theirs = stdin_read, stdout_write, stderr_write
        is_first = bool(namespaces & syscalls.NEWPID)
        self._status, status_write = os.pipe() if is_first else (-1, -1)
        try:
            self.pid = syscalls.fork_into(syscalls.NEWPID) if is_first else os.fork()
            if self.pid == 0:
                if is_first:
                    _become_first(status_write)
                _become_program(blob[:body], blob[body + stdin :], limits, theirs, namespaces, mounts, station)
        except OSError:
            self._close_pipes()
            raise
        finally:
            for descriptor in (*theirs, *([status_write] if is_first else [])):
                os.close(descriptor)

    def finish(self) -> dict[str, Any]:
        """Waits for the end, or kills the program; returns the outcome. Raises FrameError if the trainer has gone."""
        ended = self._move_bytes()
        if ended is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            _, status, usage = os.wait4(self.pid, 0)
        else:
            status, usage = ended
        for pipe, output in self._reading.items():
            output.drain(pipe)
        if self._status >= 0 and (text := os.read(self._status, _MAX_REASON)):
            status = int(text)
        self._close_pipes()
        if self._watch.is_full:
            self._outputs[1].note(DISK_FULL)
        error = _setup_error(self._station.ready[0])
        if error and ended is not None:
            return {"error": error}
        return {
            **outcome(status, usage),
            **sizes(*self._outputs),
            "timed_out": ended is None and not self._watch.is_oom and not self._watch.is_full,
            "oom": self._watch.is_oom,
            "wall_s": time.monotonic() - self._started,
        }

    def _move_bytes(self) -> tuple[int, resource.struct_rusage] | None:
        """Moves bytes until the program has ended; None if it must be killed."""
        end = os.pidfd_open(self.pid)
        self._watch.add(end)
        try:
            # Most programs are short and print less than a pipe holds, so only their end wakes this process.
            ready = [] if self._stdin else self._watch.wait(at_most_s=_SHORT_S)
            if ready:
                return exited(self.pid)
            for pipe in self._reading:
                self._watch.add(pipe)
            if self._stdin:
                self._watch.add(self._stdin_pipe, for_writing=True)
            while ready is not None:
                for descriptor in ready:
                    if descriptor == self._stdin_pipe:
                        self._feed_stdin()
                        if not self._stdin:
                            self._watch.remove(descriptor)
                    elif descriptor != end and not self._reading[descriptor].read(descriptor):
                        self._watch.remove(descriptor)
                if end in ready:
                    return exited(self.pid)  # remaining holders of the pipes are killed next
                ready = self._watch.wait()
        finally:
            os.close(end)
        return None

    def _feed_stdin(self) -> None:
        try:
            self._stdin = self._stdin[os.write(self._stdin_pipe, self._stdin[:_CHUNK]) :]
        except BrokenPipeError:
            self._stdin = self._stdin[:0]
        if not self._stdin:
            self._close_stdin()

    def _close_stdin(self) -> None:
        if self._stdin_pipe >= 0:
            os.close(self._stdin_pipe)
            self._stdin_pipe = -1

    def _close_pipes(self) -> None:
        self._close_stdin()
        for pipe in (*self._reading, *([self._status] if self._status >= 0 else [])):
            os.close(pipe)


def is_over(memory_bytes: int | None, disk: disk_use.Disk | None) -> tuple[bool, bool]:
    """Returns whether the memory and the files of a box exceed their limits, if there are any."""
    is_oom = memory_bytes is not None and memory.used_bytes() > memory_bytes
    return is_oom, disk is not None and disk_use.is_full(disk)


def exited(pid: int) -> tuple[int, resource.struct_rusage] | None:
    """Returns status and usage of a child that has ended, else None."""
    ended_pid, status, usage = os.wait4(pid, os.WNOHANG)
    return (status, usage) if ended_pid else None


def outcome(status: int, usage: resource.struct_rusage) -> dict[str, Any]:
    """Returns exit status and usage of a process."""
    return {
        "exit_code": os.waitstatus_to_exitcode(status),
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_memory_kb": usage.ru_maxrss,
    }


def sizes(stdout: Output, stderr: Output) -> dict[str, Any]:
    """Returns the sizes of kept output, and whether it is complete."""
    return {
        "stdout_size": stdout.size,
        "stderr_size": stderr.size,
        "stdout_truncated": stdout.is_truncated,
        "stderr_truncated": stderr.is_truncated,
    }


def _setup_error(ready: int) -> str:
    """Returns the failure before the program started its code; empty if there was none."""
    try:
        return os.read(ready, _MAX_REASON).decode(errors="replace").strip("\0")
    except BlockingIOError:
        return "the process ended before it was ready"


def _become_first(report: int) -> None:
    """Forks the program and waits for it, as process 1 of a namespace; returns in the program.

    The kernel ends everything else in the namespace with it. It can die of no signal that it sends itself, so it
    reports the program's status.
    """
    pid = os.fork()
    if pid == 0:
        os.close(report)
        return
    try:
        ended = 0
        while ended != pid:
            ended, status = os.waitpid(-1, 0)
        os.write(report, b"%d" % status)
    finally:
        os._exit(0)


def _become_program(
    body_text: memoryview,
    contents: memoryview,
    limits: dict[str, Any],
    stdio: tuple[int, int, int],
    namespaces: int,
    mounts: Sequence[Callable[[], None]],
    station: child.Station,
) -> None:
    """Never returns."""
    code, ready = 1, station.ready[1]
    try:
        try:
            if namespaces:
                syscalls.unshare(namespaces & ~syscalls.NEWPID)  # in which it is already
            for mount in mounts:
                mount()
            body = marshal.loads(body_text)
            os.environ.update(station.env)
            os.environ.update(body["env"])
            try:
                os.chdir(station.root)
                if body["files"]:
                    files.write(station.root, body["files"], contents, user=station.user)
            except (OSError, ValueError, files.BadPathError) as error:
                # Caused by the code or command: a full disk, a link, an invalid file name, a changed mode.
                os.write(stdio[2], f"the files could not be written: {error}\n".encode(errors="replace"))
                os.write(ready, b"\0")
                os._exit(1)
            child.become_untrusted(limits, stdio=stdio, keep=(ready,), station=station)
            os.write(ready, b"\0")
            os.close(ready)
        except BaseException as error:
            os.write(ready, f"{type(error).__name__}: {error}".encode(errors="replace")[:_MAX_REASON])
            os._exit(1)
        if body["argv"] is not None:
            child.execute(body["argv"])
        code = child.run_code(body["code"], station.work)
    finally:
        os._exit(code)
