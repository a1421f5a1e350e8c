"""Runs one long child process: its output in a log, its whole process tree measured, and ended when we end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from verl_agentic.errors import AgenticError

_POLL_S = 0.5
_GRACE_S = 20.0  # for Ray, to end its own processes


class ChildFailedError(AgenticError, RuntimeError):
    """A child process did not end well; the message has the end of its log."""


class MemoryMeter:
    """The most memory that this process and all its descendants held together."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self.seen: dict[int, psutil.Process] = {}
        """Every descendant that was ever seen, so that one whose parent has died is still found."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends measuring."""
        self._stop.set()
        self._thread.join()

    def measure(self) -> None:
        """Looks once."""
        me = psutil.Process()
        with contextlib.suppress(psutil.Error):
            self.seen.update({p.pid: p for p in me.children(recursive=True)})
        # Proportional size: pages that processes share are counted once.
        self.peak_bytes = max(self.peak_bytes, sum(map(_size, [me, *self.seen.values()])))

    def _run(self) -> None:
        while not self._stop.wait(2.0):
            self.measure()


def _size(process: psutil.Process) -> int:
    try:
        return process.memory_full_info().pss
    except (psutil.Error, AttributeError):
        return 0


def run_child(
    command: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str],
    meter: MemoryMeter,
    on_poll: Callable[[], None] = lambda: None,
) -> None:
    """Runs a command to its end; whatever happens, none of its processes outlives the call.

    Args:
        command: program and arguments.
        log: gets stdout and stderr.
        environment: added to ours.
        meter: knows the processes that the child started.
        on_poll: called twice a second, to show progress.

    Raises:
        ChildFailedError: exit code other than 0.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    before = set(meter.seen)
    with log.open("wb") as output:
        # A session of its own: Ctrl-C reaches us alone, and we end the child in order.
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, **environment}, start_new_session=True
        )
        try:
            while process.poll() is None:
                on_poll()
                time.sleep(_POLL_S)
        finally:
            meter.measure()
            _end(process, [p for pid, p in meter.seen.items() if pid not in before])
    if process.returncode != 0:
        raise ChildFailedError(
            f"{' '.join(command[:4])} ... ended with exit code {process.returncode}; the end of {log}:\n{_tail(log)}"
        )


def _end(process: subprocess.Popen[bytes], descendants: list[psutil.Process]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
    if process.poll() is None:
        process.kill()
        process.wait()
    _, alive = psutil.wait_procs(descendants, timeout=5.0)
    for survivor in alive:
        with contextlib.suppress(psutil.Error):
            survivor.kill()  # psutil checks that the pid still is the process that was seen


def _tail(log: Path, lines: int = 25) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
