"""Runs code as a plain child process with resource limits.

This bounds accidents (endless loops, memory, output), it does not contain malice: the code runs as the same user,
sees the same files and has the same network. Use it for policies that you train on tasks you trust.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from weakref import WeakKeyDictionary

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


class LocalSandbox:
    """Runs every execution in a fresh isolated interpreter (`python -I -S`: no user site, no environment)."""

    def __init__(self, *, max_running: int | None = None) -> None:
        """Makes a sandbox that runs at most `max_running` processes at once (default: twice the cores)."""
        self._max_running = max_running or 2 * (os.cpu_count() or 1)
        self._slots_of: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    async def run_python(self, code: str, *, limits: Limits) -> CommandResult:
        """Runs Python source; see `Sandbox.run_python`."""
        async with self._slots():
            started = time.monotonic()
            process = await _spawn(limits)
            try:
                stdout, stderr, timed_out = await _communicate(process, code.encode("utf-8", "replace"), limits)
            finally:
                _kill_group(process)
                await process.wait()
        return CommandResult(
            stdout=stdout[: limits.output_bytes].decode("utf-8", "replace"),
            stderr=stderr[: limits.output_bytes].decode("utf-8", "replace"),
            exit_code=process.returncode if process.returncode is not None else -signal.SIGKILL,
            timed_out=timed_out,
            truncated=max(len(stdout), len(stderr)) > limits.output_bytes,
            wall_s=time.monotonic() - started,
        )

    def _slots(self) -> asyncio.Semaphore:
        # A semaphore belongs to the event loop that first waits on it.
        return self._slots_of.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self._max_running))


async def _spawn(limits: Limits) -> asyncio.subprocess.Process:
    arguments = (str(limits.cpu_s), str(limits.memory_mb * 2**20), str(_FILE_SIZE_BYTES))
    try:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *("-I", "-S", "-c", _BOOTSTRAP, *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"LC_ALL": "C.UTF-8"},
            cwd="/tmp",
            start_new_session=True,
        )
    except OSError as cause:
        raise SandboxError(f"could not start a Python process, got {cause}; check memory and process limits") from cause


async def _communicate(process: asyncio.subprocess.Process, source: bytes, limits: Limits) -> tuple[bytes, bytes, bool]:
    """Returns stdout and stderr (at most one byte over the limit each) and whether the wall limit was reached."""
    assert process.stdin
    assert process.stdout
    assert process.stderr
    outputs = (bytearray(), bytearray())
    readers = asyncio.gather(
        _read(process.stdout, outputs[0], limits.output_bytes + 1),
        _read(process.stderr, outputs[1], limits.output_bytes + 1),
        _write(process.stdin, source),
        process.wait(),
    )
    try:
        await asyncio.wait_for(readers, limits.wall_s)
        timed_out = False
    except asyncio.TimeoutError:
        timed_out = True
    return bytes(outputs[0]), bytes(outputs[1]), timed_out


async def _write(stream: asyncio.StreamWriter, source: bytes) -> None:
    # The process may end before it has read its source: its exit code tells.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stream.write(source)
        await stream.drain()
        stream.close()


async def _read(stream: asyncio.StreamReader, into: bytearray, keep: int) -> None:
    """Reads to the end and keeps the first `keep` bytes, so that endless output costs no memory."""
    while chunk := await stream.read(_CHUNK):
        into.extend(chunk[: keep - len(into)])


def _kill_group(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):  # the whole group has ended
        os.killpg(process.pid, signal.SIGKILL)
