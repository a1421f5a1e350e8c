"""One program, from fork to exit: its output is kept up to a limit while it streams, its end made at the deadline."""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import select
import signal
import time
from collections.abc import Callable
from typing import Any

from . import child, files, memory, syscalls
from .frames import FrameError
from .memory import Memory

_CHUNK = 65_536
_WATCH_S = 0.1  # how often memory is looked at where no control group does it


class Output:
    """What has been read of a pipe."""

    def __init__(self, limit: int) -> None:
        self.is_truncated = False
        self.size = 0
        self._limit = limit
        self.memory = Memory(limit + _CHUNK)  # the last piece is where the rest goes to be thrown away

    @property
    def kept(self) -> memoryview:
        """What was kept."""
        return self.memory.view[: self.size]

    def read(self, descriptor: int) -> bool:
        """Reads what is there, up to a piece; False when the pipe is closed.

        Raises:
            BlockingIOError: nothing is there.
        """
        room = self._limit - self.size
        if room > 0:
            count = os.readv(descriptor, [self.memory.view[self.size : self.size + min(room, _CHUNK)]])
            self.size += count
        else:
            count = os.readv(descriptor, [self.memory.view[self._limit :]])
            self.is_truncated |= count > 0
        return count > 0

    def drain(self, descriptor: int) -> None:
        """Reads what is in the pipe now, and no more: somebody may be writing for ever."""
        for _ in range(32):
            try:
                if not self.read(descriptor):
                    return
            except BlockingIOError:
                return


class Watch:
    """What can end a program from outside: the deadline, the trainer's end, and memory where no group limits it."""

    def __init__(self, *, deadline: float, trainer: int | None, memory_bytes: int | None) -> None:
        """Takes the deadline on the monotonic clock, the trainer's descriptor if it may go first, and a limit on all
        processes together where this is the one to keep it."""
        self.is_oom = False
        self._deadline, self._trainer, self._memory_bytes = deadline, trainer, memory_bytes
        self._next_look = time.monotonic() + _WATCH_S
        self._poll = select.poll()  # not select(), which knows descriptors up to 1023 only
        if trainer is not None:
            self._poll.register(trainer, select.POLLIN)

    def add(self, descriptor: int, *, for_writing: bool = False) -> None:
        """Waits for this one, too."""
        self._poll.register(descriptor, select.POLLOUT if for_writing else select.POLLIN)

    def remove(self, descriptor: int) -> None:
        """Waits for it no more."""
        self._poll.unregister(descriptor)

    def wait(self) -> list[int] | None:
        """Returns those that are ready, perhaps none; None when the time or the memory is used up.

        Raises:
            FrameError: the trainer has gone.
        """
        now = time.monotonic()
        left = self._deadline - now
        if left <= 0:
            return None
        if self._memory_bytes is not None:
            if now >= self._next_look:
                self._next_look = now + _WATCH_S
                self.is_oom = memory.used_bytes() > self._memory_bytes
                if self.is_oom:
                    return None
            left = min(left, self._next_look - now)
        ready = [descriptor for descriptor, _ in self._poll.poll(math.ceil(left * 1000))]
        if self._trainer in ready:
            raise FrameError("the trainer has gone")
        return ready


class Program:
    """A process that runs untrusted code."""

    def __init__(
        self,
        request: dict[str, Any],
        *,
        body: memoryview,
        stdin: memoryview,
        contents: memoryview,
        prepare: Callable[[], None],
        namespaces: int,
        station: child.Station,
    ) -> None:
        """Forks.

        Args:
            request: limits, and the environment as it is without what the request adds.
            body: the rest of the request, JSON that only the new process reads: code, argv, env, files.
            stdin: what it can read.
            contents: of the files, one after the other.
            prepare: run in the new process while it still has its rights.
            namespaces: new ones of the process.
            station: what all programs of the box have in common.
        """
        self._limits = request["limits"]
        self._has_group = station.has_group
        self._stdin = stdin
        self._started = time.monotonic()
        stdin_read, self._stdin_pipe = os.pipe()
        self._stdout_pipe, stdout_write = os.pipe()
        self._stderr_pipe, stderr_write = os.pipe()
        ready_read, ready_write = os.pipe()
        ours, theirs = (
            (self._stdin_pipe, self._stdout_pipe, self._stderr_pipe),
            (stdin_read, stdout_write, stderr_write),
        )
        try:
            self.pid = syscalls.fork_into(namespaces)
        except OSError:
            for descriptor in (*ours, *theirs, ready_read, ready_write):
                os.close(descriptor)
            raise
        if self.pid == 0:
            _become(request, body, contents, theirs, ready_write, prepare, station)
        for descriptor in (*theirs, ready_write):
            os.close(descriptor)
        for descriptor in ours:
            os.set_blocking(descriptor, False)
        # Only now: the new process shall not have them.
        self.stdout, self.stderr = Output(self._limits["output_bytes"]), Output(self._limits["output_bytes"])
        self.error = _setup_error(ready_read)

    def finish(self, *, trainer: int) -> dict[str, Any]:
        """Waits for the end, or makes it; returns what happened.

        Raises:
            FrameError: the trainer has gone.
        """
        watch = Watch(
            deadline=self._started + self._limits["wall_s"],
            trainer=trainer,
            memory_bytes=None if self._has_group else self._limits["memory_bytes"],
        )
        ended = self._pump(watch)
        if ended is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            _, status, usage = os.wait4(self.pid, 0)
        else:
            status, usage = ended
        for output, pipe in ((self.stdout, self._stdout_pipe), (self.stderr, self._stderr_pipe)):
            output.drain(pipe)
            os.close(pipe)
        self._close_stdin()
        return {
            **outcome(status, usage),
            **sizes(self.stdout, self.stderr),
            "timed_out": ended is None and not watch.is_oom,
            "oom": watch.is_oom,
            "wall_s": time.monotonic() - self._started,
        }

    def _pump(self, watch: Watch) -> tuple[int, resource.struct_rusage] | None:
        """Moves bytes until the program has ended; None when it must be ended."""
        reading = {self._stdout_pipe: self.stdout, self._stderr_pipe: self.stderr}
        end = os.pidfd_open(self.pid)
        for descriptor in (end, *reading):
            watch.add(descriptor)
        if self._stdin:
            watch.add(self._stdin_pipe, for_writing=True)
        else:
            self._close_stdin()
        try:
            while (ready := watch.wait()) is not None:
                for descriptor in ready:
                    if descriptor == self._stdin_pipe:
                        self._feed(watch)
                    elif descriptor != end and not reading[descriptor].read(descriptor):
                        watch.remove(descriptor)
                if end in ready:
                    return exited(self.pid)  # who still holds the pipes was forked off, and is killed next
        finally:
            os.close(end)
        return None

    def _feed(self, watch: Watch) -> None:
        try:
            self._stdin = self._stdin[os.write(self._stdin_pipe, self._stdin[:_CHUNK]) :]
        except BrokenPipeError:
            self._stdin = self._stdin[:0]
        if not self._stdin:
            watch.remove(self._stdin_pipe)
            self._close_stdin()

    def _close_stdin(self) -> None:
        if self._stdin_pipe >= 0:
            os.close(self._stdin_pipe)
            self._stdin_pipe = -1


def exited(pid: int) -> tuple[int, resource.struct_rusage] | None:
    """Returns status and usage of a child that has ended, else None."""
    found, status, usage = os.wait4(pid, os.WNOHANG)
    return (status, usage) if found else None


def outcome(status: int, usage: resource.struct_rusage) -> dict[str, Any]:
    """Returns how a process ended and what it used."""
    return {
        "exit_code": os.waitstatus_to_exitcode(status),
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_memory_kb": usage.ru_maxrss,
    }


def sizes(stdout: Output, stderr: Output) -> dict[str, Any]:
    """Returns how much was kept, and whether that is all."""
    return {
        "stdout_size": stdout.size,
        "stderr_size": stderr.size,
        "stdout_truncated": stdout.is_truncated,
        "stderr_truncated": stderr.is_truncated,
    }


def _setup_error(ready: int) -> str:
    """Waits until the process is about to run the code; returns what failed before."""
    text = b""
    while chunk := os.read(ready, 4096):
        text += chunk
        if text == b"\0":
            break
    os.close(ready)
    return text.decode(errors="replace").strip("\0") if text else "the process ended before it was ready"


def _become(
    request: dict[str, Any],
    body_text: memoryview,
    contents: memoryview,
    stdio: tuple[int, int, int],
    ready: int,
    prepare: Callable[[], None],
    station: child.Station,
) -> None:
    """Never returns."""
    code = 1
    try:
        try:
            body = json.loads(bytes(body_text))
            env = {**request["env"], **body["env"]}
            prepare()
            try:
                files.write(files.WORK, body["files"], contents, user=station.user)
            except (OSError, ValueError, files.BadPathError) as error:
                # The doing of the code: a full disk, a link in the way, a name that no file can have.
                os.write(stdio[2], f"the files could not be written: {error}\n".encode(errors="replace"))
                os.write(ready, b"\0")
                os._exit(1)
            child.become_untrusted(request["limits"], stdio=stdio, env=env, keep=(ready,), station=station)
            os.write(ready, b"\0")
            os.close(ready)
        except BaseException as error:
            os.write(ready, f"{type(error).__name__}: {error}".encode(errors="replace")[:4096])
            os._exit(1)
        if body["argv"] is not None:
            child.execute(body["argv"], env)
        code = child.run_code(body["code"])
    finally:
        os._exit(code)
