"""A Python interpreter or a shell that keeps its state between calls.

Calls go in through one pipe, each ended by a NUL; a status line comes out of another one. The untrusted process
controls both, so it can at most break its own session.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from . import child, main_module, syscalls
from .disk_use import Disk
from .kept_output import Output
from .program import DISK_FULL, ProgramWatch, exited, is_over, outcome, sizes

CALLS, STATUS = 3, 4  # descriptors inside the session
_MAX_STATUS = 64
BASH = 'while IFS= read -r -d "" -u 3 line; do eval "$line" 3<&- 4>&-; echo $? >&4; done'


class ProcessSession:
    """The box's end."""

    def __init__(
        self,
        start: Callable[[int, int, int, int], int],
        *,
        kill: Callable[[int], None] | None = None,
        trainer: int | None = None,
        memory_bytes: int | None = None,
        disk: Disk | None = None,
    ) -> None:
        """Starts the interpreter or the shell.

        Args:
            start: starts it with the ends of its pipes (calls, status, stdout, stderr) and returns its pid.
            kill: ends a pid; None: kills only the process.
            trainer: descriptor that is readable when the trainer has gone.
            memory_bytes: limit of all processes together; None: limited elsewhere.
            disk: limit on files; None: limited elsewhere.
        """
        self._trainer, self._memory_bytes, self._disk = trainer, memory_bytes, disk
        calls_read, self._calls = os.pipe()
        self._status, status_write = os.pipe()
        self._stdout_pipe, stdout_write = os.pipe()
        self._stderr_pipe, stderr_write = os.pipe()
        theirs = (calls_read, status_write, stdout_write, stderr_write)
        try:
            self.pid = start(*theirs)
        except OSError:
            for descriptor in (*theirs, self._calls, self._status, self._stdout_pipe, self._stderr_pipe):
                os.close(descriptor)
            raise
        self._kill_process = kill or _kill_process
        for descriptor in theirs:
            os.close(descriptor)
        for descriptor in (self._status, self._stdout_pipe, self._stderr_pipe, self._calls):
            os.set_blocking(descriptor, False)
        self.has_ended = False
        self._stdout, self._stderr = Output(), Output()

    @property
    def stdout(self) -> bytes:
        """The kept output of the last call."""
        return b"".join(self._stdout.pieces)

    @property
    def stderr(self) -> bytes:
        """The kept output of the last call."""
        return b"".join(self._stderr.pieces)

    def call(self, text: bytes, *, wall_s: float, output_bytes: int) -> dict[str, Any]:
        """Runs a piece of source or a command line; returns the outcome. Raises FrameError if the trainer has gone."""
        started = time.monotonic()
        self._stdout.begin(output_bytes)
        self._stderr.begin(output_bytes)
        watch = ProgramWatch(
            deadline=started + wall_s, trainer=self._trainer, memory_bytes=self._memory_bytes, disk=self._disk
        )
        line = self._move_bytes(memoryview(text.replace(b"\0", b"") + b"\0"), watch=watch)
        result: dict[str, Any] = {
            "timed_out": line is None and not watch.is_oom and not watch.is_full,
            "oom": watch.is_oom,
            "exit_code": _status_of(line),
            "cpu_s": 0.0,
            "peak_memory_kb": 0,
        }
        if line is None or not line.endswith(b"\n"):
            result.update(self._reap_process(must_kill=line is None))
        for output, pipe in ((self._stdout, self._stdout_pipe), (self._stderr, self._stderr_pipe)):
            output.drain(pipe)
        if watch.is_full:
            self._stderr.note(DISK_FULL)
        return {
            **result,
            **sizes(self._stdout, self._stderr),
            "ended": self.has_ended,
            "wall_s": time.monotonic() - started,
        }

    @property
    def is_limited(self) -> bool:
        """Returns True if its memory or its files are limited only by regular checks."""
        return self._memory_bytes is not None or self._disk is not None

    def exceeds(self) -> bool:
        """Returns whether its memory or its files exceed their limit now."""
        return is_over(self._memory_bytes, self._disk) != (False, False)

    def end(self) -> None:
        """Ends the process; the box ends its children."""
        if not self.has_ended:
            self._reap_process(must_kill=True)
        for descriptor in (self._calls, self._status, self._stdout_pipe, self._stderr_pipe):
            os.close(descriptor)

    def _move_bytes(self, text: memoryview, *, watch: ProgramWatch) -> bytes | None:
        """Moves bytes until the status arrives; returns its line, truncated if the session ended; None: end it."""
        if self._has_forged():
            return b""
        line = b""
        reading = {self._stdout_pipe: self._stdout, self._stderr_pipe: self._stderr}
        for descriptor in (self._status, *reading):
            watch.add(descriptor)
        watch.add(self._calls, for_writing=True)
        while (ready := watch.wait()) is not None:
            for descriptor in ready:
                if descriptor == self._status:
                    piece = os.read(descriptor, _MAX_STATUS)
                    line += piece
                    if not piece or line.endswith(b"\n") or len(line) > _MAX_STATUS:
                        return line
                elif descriptor == self._calls:
                    try:
                        text = text[os.write(descriptor, text) :]
                    except BrokenPipeError:
                        text = text[:0]
                    if not text:
                        watch.remove(descriptor)
                elif not reading[descriptor].read(descriptor):
                    watch.remove(descriptor)
        return None

    def _has_forged(self) -> bool:
        """Returns whether an unexpected status arrived, which would pass for the next answer."""
        try:
            os.read(self._status, 1)
        except BlockingIOError:
            return False
        self._kill_process(self.pid)
        return True

    def _reap_process(self, *, must_kill: bool) -> dict[str, Any]:
        """Reaps the ending process, or kills it."""
        self.has_ended = True
        ended = None if must_kill else _wait_shortly(self.pid)
        if ended is not None:
            return outcome(*ended)
        self._kill_process(self.pid)
        _, status, usage = os.wait4(self.pid, 0)
        return outcome(status, usage)


def fork(
    request: dict[str, Any],
    calls: int,
    status: int,
    stdout: int,
    stderr: int,
    *,
    station: child.Station,
    namespaces: int,
) -> int:
    """Forks an untrusted interpreter or shell off this process, into new namespaces; returns its pid."""
    pid = os.fork()
    if pid == 0:
        _become_session(request, (calls, status, stdout, stderr), station, namespaces)
    return pid


def _kill_process(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _status_of(line: bytes | None) -> int:
    try:
        return int(line or b"1")
    except ValueError:
        return 1


def _wait_shortly(pid: int) -> Any:
    for _ in range(50):
        ended = exited(pid)
        if ended is not None:
            return ended
        time.sleep(0.002)
    return None


def _become_session(
    request: dict[str, Any], pipes: tuple[int, int, int, int], station: child.Station, namespaces: int
) -> None:
    """Never returns."""
    code = 1
    calls, status, stdout, stderr = pipes
    try:
        if namespaces:
            syscalls.unshare(namespaces)
        null = os.open("/dev/null", os.O_RDONLY)
        # Moves them to free numbers first, to avoid collisions with their targets.
        calls, status = (fcntl.fcntl(descriptor, fcntl.F_DUPFD, STATUS + 1) for descriptor in (calls, status))
        os.environ.update(station.env)
        os.chdir(station.root)
        child.become_untrusted(request["limits"], stdio=(null, stdout, stderr), keep=(calls, status), station=station)
        os.dup2(calls, CALLS)
        os.dup2(status, STATUS)
        os.closerange(STATUS + 1, 65_536)
        if request["kind"] == "bash":
            child.execute(["bash", "--noprofile", "--norc", "-c", BASH])
        sys.path.insert(0, os.getcwd())
        code = interpret()
    except BaseException as error:
        main_module.print_error(error)
    finally:
        os._exit(code)


def interpret() -> int:
    """Runs pieces of source in one main module and shows the value of a last expression, as a notebook does.

    A process that a piece forks ends with the piece, as it would end with a script.
    """
    module, pid = main_module.new_main_module(), os.getpid()
    files = itertools.chain([main_module.FILE], (f"main_{number}.py" for number in itertools.count(2)))
    with open(CALLS, "rb", buffering=0) as calls:
        pending = b""
        while chunk := calls.read(1 << 16):
            pending += chunk
            while b"\0" in pending:
                text, _, pending = pending.partition(b"\0")
                module.__dict__.pop("__warningregistry__", None)  # each piece shows its own warnings
                source = text.decode("utf-8", "replace")
                status = main_module.run_source(source, module, file=next(files), shows_value=True)
                if os.getpid() != pid:
                    return main_module.finish(status)
                main_module.flush()
                os.write(STATUS, b"%d\n" % status)
    return main_module.finish(0)
