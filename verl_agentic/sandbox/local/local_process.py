"""One program of the backend `local`, from start to end, watched from a thread."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import resource
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from verl_agentic.base.errors import SandboxError
from verl_agentic.sandbox.inside import files
from verl_agentic.sandbox.inside.kept_output import Output
from verl_agentic.sandbox.interface import BadRequestError, Command, CommandResult, Limits

# The child sets its limits itself, because a preexec_fn is unsafe with threads. The alarm ends a program whose trainer
# was killed.
LIMIT = """
import os, resource, sys
from signal import alarm
def limit(name, soft, hard):
    highest = resource.getrlimit(name)[1]
    if highest != resource.RLIM_INFINITY:
        soft, hard = min(soft, highest), min(hard, highest)
    resource.setrlimit(name, (soft, hard))
alarm_s, cpu_s, memory, file_size, num_files = map(int, sys.argv[1:6])
limit(resource.RLIMIT_CPU, cpu_s, cpu_s + 1)
limit(resource.RLIMIT_AS, memory, memory)
limit(resource.RLIMIT_FSIZE, file_size, file_size)
limit(resource.RLIMIT_NOFILE, num_files, num_files)
limit(resource.RLIMIT_CORE, 0, 0)
alarm(alarm_s)
"""
_EXECUTE = """
try:
    os.execvpe(sys.argv[6], sys.argv[6:], os.environ)
except OSError as error:
    os.write(2, f"{sys.argv[6]}: {error.strerror}\\n".encode())
    os._exit(127 if isinstance(error, FileNotFoundError) else 126)
"""
IMPORT = f"""
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from verl_agentic.sandbox.inside import main_module
sys.path[0] = os.getcwd()
main_module.prepare()
"""
_RUN_CODE = f"""
with open(int(sys.argv[6]), "rb") as file:
    source = file.read().decode()
{IMPORT}
sys.exit(main_module.run_source(source, main_module.new_main_module()))
"""
_ALARM_S = 2  # after the deadline
_CHUNK = 65_536
_OUTPUTS_BYTES = 64 * 2**20


class Execution:
    """One run of one program, watched in its own thread."""

    def __init__(self, command: Command, limits: Limits) -> None:
        self._command, self._limits = command, limits
        self._stdin = memoryview(command.stdin)
        self._outputs = {"stdout": Output(), "stderr": Output()}
        for output in self._outputs.values():
            output.begin(limits.output_bytes)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_cancelled = False

    def run(self, folder: Path) -> CommandResult:
        """Runs the program in a folder to its end, or to its wall limit.

        Raises:
            BadRequestError: a path of the command goes through a link.
            SandboxError: it could not be started.
        """
        self._write_files(folder)
        with self._lock:
            if self._is_cancelled:
                raise SandboxError("the execution was cancelled before it started, got no result; run it again")
            process = self._process = self._spawn_program(folder)
        started = time.monotonic()
        try:
            timed_out = not self._move_bytes(process, deadline=started + self._limits.wall_s)
        finally:
            usage = self._end_program(process)
        stdout, stderr = self._outputs.values()
        return CommandResult(
            stdout=b"".join(stdout.pieces).decode("utf-8", "replace"),
            stderr=b"".join(stderr.pieces).decode("utf-8", "replace"),
            exit_code=process.returncode,
            timed_out=timed_out,
            stdout_truncated=stdout.is_truncated,
            stderr_truncated=stderr.is_truncated,
            wall_s=time.monotonic() - started,
            cpu_s=usage.ru_utime + usage.ru_stime,
            peak_memory_mb=_own_peak_mb(usage.ru_maxrss / 1024),
            files=_read_outputs(folder, self._command.outputs),
        )

    def cancel(self) -> None:
        """Kills the program, or prevents its start."""
        with self._lock:
            self._is_cancelled = True
            if self._process is not None and self._process.returncode is None:
                kill_group(self._process.pid)

    def _write_files(self, folder: Path) -> None:
        contents = self._command.files
        entries: list[list[object]] = [[path, len(data), 0o644] for path, data in contents.items()]
        try:
            files.write(str(folder), entries, memoryview(b"".join(contents.values())), user=None)
        except files.BadPathError as cause:
            raise BadRequestError(str(cause)) from cause

    def _spawn_program(self, folder: Path) -> subprocess.Popen[bytes]:
        alarm_s = math.ceil(self._limits.wall_s) + _ALARM_S
        start = functools.partial(spawn, limits=self._limits, alarm_s=alarm_s, folder=folder, env=self._command.env)
        if self._command.argv is not None:
            return start(_EXECUTE, self._command.argv)
        with tempfile.TemporaryFile() as source:
            source.write((self._command.code or "").encode("utf-8", "replace"))
            source.seek(0)
            return start(_RUN_CODE, [str(source.fileno())], keep=[source.fileno()])

    def _move_bytes(self, process: subprocess.Popen[bytes], *, deadline: float) -> bool:
        """Writes stdin and keeps outputs; False if the deadline came first."""
        assert process.stdin and process.stdout and process.stderr
        end = os.pidfd_open(process.pid)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(end, selectors.EVENT_READ, "end")
                for stream, name in ((process.stdout, "stdout"), (process.stderr, "stderr")):
                    os.set_blocking(stream.fileno(), False)
                    selector.register(stream, selectors.EVENT_READ, name)
                os.set_blocking(process.stdin.fileno(), False)
                selector.register(process.stdin, selectors.EVENT_WRITE, "stdin")
                while (remaining_s := deadline - time.monotonic()) > 0:
                    ready = {key.data: key.fileobj for key, _ in selector.select(remaining_s)}
                    if "end" in ready:
                        return True  # a grandchild may hold the pipes; it is killed with the group
                    for name, stream in ready.items():
                        if not self._move_piece(stream, name):  # type: ignore[arg-type]
                            selector.unregister(stream)
                            stream.close()  # type: ignore[union-attr]
        finally:
            os.close(end)
        return False

    def _move_piece(self, stream: IO[bytes], name: str) -> bool:
        """Moves a piece; returns False at the end."""
        if name == "stdin":
            try:
                self._stdin = self._stdin[os.write(stream.fileno(), self._stdin[:_CHUNK]) :]
            except BrokenPipeError:
                return False  # the program has closed it
            return bool(self._stdin)
        return self._outputs[name].read(stream.fileno())

    def _end_program(self, process: subprocess.Popen[bytes]) -> resource.struct_rusage:
        """Kills the group, reads the rest of the pipes, and returns the program's usage."""
        with self._lock:  # the pid may be reused once it is reaped
            kill_group(process.pid)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        for stream, name in ((process.stdout, "stdout"), (process.stderr, "stderr")):
            if stream is not None and not stream.closed:
                self._outputs[name].drain(stream.fileno())
                stream.close()
        if process.stdin is not None and not process.stdin.closed:
            process.stdin.close()
        return usage


def spawn(
    bootstrap: str,
    arguments: Sequence[str],
    *,
    limits: Limits,
    alarm_s: int,
    folder: Path,
    env: Mapping[str, str],
    keep: Sequence[int] = (),
    stdin: int = subprocess.PIPE,
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
) -> subprocess.Popen[bytes]:
    """Starts an isolated interpreter that limits itself and runs `bootstrap`: no site packages, writes no bytecode.

    Args:
        bootstrap: code to run after the limits are set; `arguments` start at `sys.argv[6]`.
        alarm_s: seconds after which it ends by itself; 0: never.
        folder: working folder and home.
        env: environment in addition to the sandbox's own.
        keep: descriptors that it inherits.
        stdin: as `subprocess.Popen` takes it.

    Raises:
        SandboxError: no process could be started.
    """
    numbers = (alarm_s, limits.cpu_s, limits.memory_mb * 2**20, limits.file_mb * 2**20, limits.open_files)
    path = f"{os.path.dirname(sys.executable)}:/usr/local/bin:/usr/bin:/bin"
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", "-c", LIMIT + bootstrap, *map(str, numbers), *arguments],
            bufsize=0,
            env={"PATH": path, "HOME": str(folder), "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", **env},
            cwd=folder,
            pass_fds=keep,
            start_new_session=True,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )
    except (OSError, ValueError) as cause:
        raise SandboxError(f"could not start a Python process, got {cause}; check memory and process limits") from cause


def kill_group(pid: int) -> None:
    """Kills a process and its children that are still in its group."""
    with contextlib.suppress(ProcessLookupError):  # the whole group has ended
        os.killpg(pid, signal.SIGKILL)


def _own_peak_mb(peak_mb: float) -> float:
    """Returns the peak memory of a program, in MiB, or 0 if unknown.

    The kernel's value starts at the peak of this process, from which the program was forked.
    """
    ours_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return peak_mb if peak_mb > ours_mb else 0.0


def _read_outputs(folder: Path, paths: Sequence[str]) -> dict[str, bytes]:
    """Returns existing regular files, following no links, up to the size limit."""
    contents: dict[str, bytes] = {}
    room = _OUTPUTS_BYTES
    for path in paths:
        place = folder / path
        try:
            is_own = place.is_file() and place.resolve() == folder.resolve() / os.path.normpath(path)
            if is_own and place.stat().st_size <= room:
                contents[path] = place.read_bytes()
                room -= len(contents[path])
        except OSError:
            continue  # not for us to read
    return contents
