"""An interpreter or a shell of the backend `local` that keeps its state between calls."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from verl_agentic.base.deadlines import running_code
from verl_agentic.sandbox.inside import session
from verl_agentic.sandbox.interface import CommandResult, Limits, SessionKind
from verl_agentic.sandbox.local.local_process import IMPORT, kill_group, spawn

# Moves them to free numbers first, because the trainer's open files may have taken any numbers.
_MOVE = f"""
import fcntl
calls, status = (fcntl.fcntl(int(number), fcntl.F_DUPFD, {session.STATUS + 1}) for number in sys.argv[6:8])
os.dup2(calls, {session.CALLS})
os.dup2(status, {session.STATUS})
os.closerange({session.STATUS + 1}, 65_536)
"""
_SHELL = f"{_MOVE}\nos.execvpe('bash', ['bash', '--noprofile', '--norc', '-c', {session.BASH!r}], os.environ)"
_PYTHON = f"""{_MOVE}{IMPORT}
from verl_agentic.sandbox.inside.session import interpret
os._exit(interpret())
"""


class LocalSession:
    """A session (`sandbox.interface.SandboxSession`)."""

    def __init__(self, kind: SessionKind, limits: Limits, folder: Path, threads: ThreadPoolExecutor) -> None:
        """Starts the interpreter or the shell in a folder; one of the threads watches it."""
        self._limits, self._threads = limits, threads
        self._lock = asyncio.Lock()
        self._thread_lock = threading.Lock()  # a cancelled call continues briefly in its thread
        self._is_closed = False

        def start(calls: int, status: int, stdout: int, stderr: int) -> int:
            arguments = [str(calls), str(status)]
            process = spawn(
                _SHELL if kind == "bash" else _PYTHON,
                arguments,
                limits=limits,
                alarm_s=0,  # it ends with the pipe of its calls
                folder=folder,
                env={},
                keep=[calls, status],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
            )
            process.returncode = 0  # the session reaps it
            return process.pid

        self._session = session.ProcessSession(start, kill=kill_group)

    async def run(self, text: str, *, wall_s: float) -> CommandResult:
        async with self._lock:
            if self._is_closed or self._session.has_ended:
                stderr = "the session has ended\n"
                return CommandResult(stdout="", stderr=stderr, exit_code=-9, timed_out=False, wall_s=0.0)
            try:
                with running_code(wall_s) as allowed_s:
                    loop = asyncio.get_running_loop()
                    return await loop.run_in_executor(self._threads, self._call_session, text, allowed_s)
            except asyncio.CancelledError:
                kill_group(self._session.pid)
                raise

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            if not self._session.has_ended:
                kill_group(self._session.pid)
            async with self._lock:
                await asyncio.to_thread(self._end_session)

    def _end_session(self) -> None:
        with self._thread_lock:
            self._session.end()

    def _call_session(self, text: str, wall_s: float) -> CommandResult:
        ran = self._session
        data = text.encode("utf-8", "replace")
        with self._thread_lock:
            answer = ran.call(data, wall_s=wall_s, output_bytes=self._limits.output_bytes)
            if ran.has_ended:
                kill_group(ran.pid)  # what it has started
        return CommandResult(
            stdout=ran.stdout.decode("utf-8", "replace"),
            stderr=ran.stderr.decode("utf-8", "replace"),
            exit_code=answer["exit_code"],
            timed_out=answer["timed_out"],
            stdout_truncated=answer["stdout_truncated"],
            stderr_truncated=answer["stderr_truncated"],
            wall_s=answer["wall_s"],
            cpu_s=answer["cpu_s"],
        )
