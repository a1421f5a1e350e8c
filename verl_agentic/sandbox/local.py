"""Runs code as a plain child process with resource limits.

This bounds accidents (endless loops, memory, output), it does not contain malice: the code runs as the same user,
sees the same files and has the same network. Use it for policies that you train on tasks you trust.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import IO

from verl_agentic.errors import SandboxError
from verl_agentic.sandbox.base import CommandResult, Limits

# Limits are set by the child itself: a preexec_fn would fork a process full of threads.
_BOOTSTRAP = """
import resource, sys
cpu_s, memory, file_size = map(int, sys.argv[1:4])
resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
source = sys.stdin.buffer.read()
sys.argv[:] = ["main.py"]
exec(compile(source, "main.py", "exec"), {"__name__": "__main__"})
"""
_FILE_SIZE_BYTES = 16 * 2**20
_CHUNK = 65_536
_EXIT_POLL_S = 0.1  # how soon an exit is seen while a grandchild keeps the pipes open


class LocalSandbox:
    """Runs every execution in a fresh isolated interpreter (`python -I -S`: no site packages, no environment)."""

    def __init__(self, *, max_running: int | None = None) -> None:
        """Makes a sandbox that runs at most `max_running` processes at once (default: twice the cores)."""
        self._threads = ThreadPoolExecutor(max_running or 2 * (os.cpu_count() or 1), thread_name_prefix="sandbox")

    async def run_python(self, code: str, *, limits: Limits) -> CommandResult:
        """Runs Python source; see `Sandbox.run_python`."""
        execution = _Execution(code.encode("utf-8", "replace"), limits)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, execution.run)
        except asyncio.CancelledError:
            execution.cancel()
            raise


class _Execution:
    """One run of one program, in a thread of its own."""

    def __init__(self, source: bytes, limits: Limits) -> None:
        self._source = memoryview(source)
        self._limits = limits
        self._kept = {"stdout": bytearray(), "stderr": bytearray()}
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._cancelled = False

    def run(self) -> CommandResult:
        """Runs the program to its end, or to its wall limit."""
        with tempfile.TemporaryDirectory(prefix="sandbox_") as folder:
            with self._lock:
                if self._cancelled:
                    raise SandboxError("the execution was cancelled before it started, got no result; run it again")
                process = self._process = _spawn(self._limits, folder)
            started = time.monotonic()
            try:
                timed_out = not self._pump(process, deadline=started + self._limits.wall_s)
            finally:
                self._kill(process)
        cap = self._limits.output_bytes
        stdout, stderr = (bytes(kept) for kept in self._kept.values())
        return CommandResult(
            stdout=stdout[:cap].decode("utf-8", "replace"),
            stderr=stderr[:cap].decode("utf-8", "replace"),
            exit_code=process.returncode,
            timed_out=timed_out,
            truncated=max(len(stdout), len(stderr)) > cap,
            wall_s=time.monotonic() - started,
        )

    def cancel(self) -> None:
        """Kills the program, or keeps it from starting."""
        with self._lock:
            self._cancelled = True
            if self._process is not None and self._process.poll() is None:
                _kill_group(self._process)

    def _pump(self, process: subprocess.Popen[bytes], *, deadline: float) -> bool:
        """Feeds stdin and keeps the outputs' beginnings; returns False when the deadline came first."""
        assert process.stdin and process.stdout and process.stderr
        with selectors.DefaultSelector() as selector:
            for stream, name in ((process.stdout, "stdout"), (process.stderr, "stderr")):
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ, name)
            os.set_blocking(process.stdin.fileno(), False)
            selector.register(process.stdin, selectors.EVENT_WRITE, "stdin")
            while len(selector.get_map()) > 0:
                has_ended = process.poll() is not None
                if time.monotonic() > deadline:
                    return has_ended
                events = selector.select(0.0 if has_ended else _EXIT_POLL_S)
                for key, _ in events:
                    self._move(selector, key.fileobj, key.data)  # type: ignore[arg-type]
                if has_ended and not any(key.data != "stdin" for key, _ in events):
                    return True  # whoever still holds the pipes is a grandchild: it is killed with the group
        return self._wait(process, deadline)

    def _move(self, selector: selectors.BaseSelector, stream: IO[bytes], name: str) -> None:
        try:
            if name == "stdin":
                self._source = self._source[os.write(stream.fileno(), self._source[:_CHUNK]) :]
                finished = not self._source
            else:
                kept, chunk = self._kept[name], os.read(stream.fileno(), _CHUNK)
                kept.extend(chunk[: self._limits.output_bytes + 1 - len(kept)])
                finished = not chunk
        except BrokenPipeError:
            finished = True  # the program ended before it had read its source: its exit code tells
        if finished:
            selector.unregister(stream)
            stream.close()

    def _wait(self, process: subprocess.Popen[bytes], deadline: float) -> bool:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:  # the pid may be reused once it is reaped
            _kill_group(process)
            process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()


def _spawn(limits: Limits, folder: str) -> subprocess.Popen[bytes]:
    arguments = (str(limits.cpu_s), str(limits.memory_mb * 2**20), str(_FILE_SIZE_BYTES))
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={"LC_ALL": "C.UTF-8"},
            cwd=folder,
            start_new_session=True,
        )
    except OSError as cause:
        raise SandboxError(f"could not start a Python process, got {cause}; check memory and process limits") from cause


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):  # the whole group has ended
        os.killpg(process.pid, signal.SIGKILL)
