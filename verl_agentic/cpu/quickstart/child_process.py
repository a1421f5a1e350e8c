"""Runs a long child process: logs its output, measures its process tree, and ends the tree."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

import psutil

from verl_agentic.base.errors import RAY_IS_SLOW, AgenticError

CPU_ENVIRONMENT = {
    "VERL_PLATFORM": "cpu",
    # Idle OpenMP threads spin for about 1 ms: longer slows other processes, sleeping at once slows small models.
    "GOMP_SPINCOUNT": "20000",
    "HF_HUB_OFFLINE": "1",
    "PYTHONUNBUFFERED": "1",
    "RAY_ADDRESS": "local",  # Ray would join a cluster that runs on this machine, which refuses the run's options
}
ENVIRONMENTS = {"cpu": CPU_ENVIRONMENT, "cuda": {**CPU_ENVIRONMENT, "VERL_PLATFORM": "nvidia"}}
"""Device -> variables of its trainers."""
_POLL_S, _MEASURE_S = 0.5, 2.0
_GRACE_S = 20.0  # for Ray, to end its own processes
_SURVIVORS_S = 5.0


class ChildFailedError(AgenticError, RuntimeError):
    """A child process failed; the message has the end of its log."""


class MemoryMeter:
    """The peak memory of this process and all its descendants together."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self.seen: dict[int, psutil.Process] = {}
        """Every living descendant seen so far, so that one whose parent has died is still found."""
        self._parents: dict[int, int] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._measure_often, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops the measurement."""
        self._stop.set()
        self._thread.join()

    def measure(self) -> None:
        """Measures once."""
        me = psutil.Process()
        with self._lock:
            processes = dict(self.seen)
            with contextlib.suppress(psutil.Error):
                processes.update({p.pid: p for p in me.children(recursive=True)})
            for pid in processes.keys() - self._parents.keys():
                with contextlib.suppress(psutil.Error):
                    self._parents[pid] = processes[pid].ppid()
            # A new dict, because other threads read the old one. Ended processes are removed: their pids may be reused.
            self.seen = {pid: p for pid, p in processes.items() if p.is_running()}
            # Proportional size counts shared pages once.
            self.peak_bytes = max(self.peak_bytes, sum(map(_measure_size, [me, *self.seen.values()])))

    def descendants(self, ancestor: int) -> list[psutil.Process]:
        """Returns the living descendants of processes, also of parents that have died."""
        with self._lock:
            return [p for pid, p in self.seen.items() if ancestor in self._list_ancestors(pid)]

    def _list_ancestors(self, pid: int) -> list[int]:
        line: list[int] = []
        while pid in self._parents and pid not in line:
            line.append(pid)
            pid = self._parents[pid]
        return [*line[1:], pid]

    def _measure_often(self) -> None:
        pause_s = _MEASURE_S
        while not self._stop.wait(pause_s):
            started = time.monotonic()
            self.measure()
            # Counting pages is slow: spend at most 1/30 of a core on it.
            pause_s = max(_MEASURE_S, 30 * (time.monotonic() - started))


def _measure_size(process: psutil.Process) -> int:
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
    """Runs a command to its end; none of its processes outlives the call.

    If Ray is too slow to start, the command is run once more: it has done nothing by then.

    Args:
        command: program and arguments.
        log: gets stdout and stderr.
        environment: added to ours.
        meter: knows the processes that the child started.
        on_poll: called twice a second, to show progress.

    Raises:
        ChildFailedError: exit code other than 0.
    """
    try:
        _run_once(command, log, environment, meter, on_poll)
    except ChildFailedError as error:
        if RAY_IS_SLOW not in str(error):
            raise
        _run_once(command, log, environment, meter, on_poll)


def _run_once(
    command: Sequence[str], log: Path, environment: Mapping[str, str], meter: MemoryMeter, on_poll: Callable[[], None]
) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        # A session of its own: Ctrl-C reaches only this process, which ends the child.
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, **environment}, start_new_session=True
        )
        try:
            while process.poll() is None:
                on_poll()
                time.sleep(_POLL_S)
        finally:
            _end_process(process, meter)
    if process.returncode != 0:
        raise ChildFailedError(
            f"{' '.join(command[:4])} ... ended with exit code {process.returncode}; the end of {log}:\n"
            f"{_read_tail(log)}"
        )


def _end_process(process: subprocess.Popen[bytes], meter: MemoryMeter) -> None:
    descendants: list[psutil.Process] = []
    try:
        meter.measure()
        descendants = meter.descendants(process.pid)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S)
        psutil.wait_procs([*descendants, *_list_session(process.pid)], timeout=_SURVIVORS_S)
    finally:  # also after a second Ctrl-C
        if process.poll() is None:
            process.kill()
            process.wait()
        for survivor in [*descendants, *_list_session(process.pid)]:
            with contextlib.suppress(psutil.Error):
                survivor.kill()  # psutil checks that the pid still belongs to this process


def _list_session(leader: int) -> list[psutil.Process]:
    """Returns the remaining processes of a child's session, which were not seen because their parent died first."""
    members = []
    for candidate in psutil.process_iter():
        with contextlib.suppress(OSError):
            if os.getsid(candidate.pid) == leader and candidate.pid != leader:
                members.append(candidate)
    return members


def _read_tail(log: Path, lines: int = 25) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


@contextlib.contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """Makes SIGTERM end the children as Ctrl-C does."""

    def interrupt(_: int, frame: FrameType | None) -> None:
        on_interrupt = signal.getsignal(signal.SIGINT)
        if not callable(on_interrupt):  # ignored, as in background jobs of a shell
            raise KeyboardInterrupt
        on_interrupt(signal.SIGINT, frame)  # a running event loop cancels its tasks

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
