"""The processes of a training of `peers.py`, with their time and memory."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from _peers_turns import Turns

from verl_agentic.cpu.quickstart.child_process import MemoryMeter, run_child

_POLL_S, _MEASURE_S = 0.005, 2.0


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Time of a training in one turn, or of its start-up."""

    seconds: float
    cpu_s: float


class Side:
    """A training in processes of its own, which works only in its turns."""

    def __init__(
        self, out: Path, *, command: Sequence[str], environment: Mapping[str, str], meter: MemoryMeter
    ) -> None:
        """Starts nothing yet. The command names the folder `out` of the training."""
        self.turns: list[Turn] = []
        self.peak_bytes = 0
        self._out, self._meter = out, meter
        self._turns, self._stop, self._step = Turns(out), threading.Event(), 0
        self._error: BaseException | None = None
        self._has_turn, self._measure_at = threading.Event(), 0.0
        self._thread = threading.Thread(target=self._run, args=(command, environment))

    def start(self) -> Turn:
        """Starts it; returns when its first step waits."""
        return self._until(self._thread.start, 1)

    def turn(self) -> None:
        """Lets it do its next step."""
        self._step += 1
        self.turns.append(self._until(lambda: self._turns.grant(self._step), self._step + 1))

    def stop(self) -> None:
        """Ends it, if it has not ended."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _until(self, begin: Callable[[], None], step: int) -> Turn:
        """Returns when it waits for a step or has ended."""
        started, used = time.perf_counter(), self._cpu_s()
        self._has_turn.set()
        begin()
        while self._turns.waiting < step and self._thread.is_alive():
            time.sleep(_POLL_S)
        self._has_turn.clear()
        if self._error is not None:
            raise self._error
        return Turn(seconds=time.perf_counter() - started, cpu_s=max(self._cpu_s() - used, 0.0))

    def _run(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        log = self._out / "training.log"
        try:
            run_child(command, log=log, environment=environment, meter=self._meter, on_poll=self._poll)
        except BaseException as error:
            self._error = error

    def _poll(self) -> None:
        if self._stop.is_set():
            raise KeyboardInterrupt
        started = time.monotonic()
        if self._has_turn.is_set() and started > self._measure_at:
            self.peak_bytes = max(self.peak_bytes, sum(map(own_memory, self._processes())))
            # Reading page tables is slow: spend at most 1/30 of a core on it.
            ended = time.monotonic()
            self._measure_at = ended + max(_MEASURE_S, 30 * (ended - started))

    def _processes(self) -> list[psutil.Process]:
        found: dict[int, psutil.Process] = {}
        for root in psutil.Process().children():
            if _names(root, self._out):
                with contextlib.suppress(psutil.Error):
                    # The meter knows those whose parent has died.
                    known = (root, *root.children(recursive=True), *self._meter.descendants(root.pid))
                    found.update({process.pid: process for process in known})
        return list(found.values())

    def _cpu_s(self) -> float:
        """Returns the processor time so far; that of ended processes is with the parent that waited for them."""
        used = 0.0
        for process in self._processes():
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                used += times.user + times.system + times.children_user + times.children_system
        return used


def own_memory(process: psutil.Process) -> int:
    """Returns the anonymous and shared memory of a process in bytes; a shared page counts in parts."""
    try:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    sizes = {name: int(size.split()[0]) for name, _, size in (line.partition(":") for line in lines[1:])}
    return 1024 * (sizes["Pss_Anon"] + sizes["Pss_Shmem"])


def _names(process: psutil.Process, folder: Path) -> bool:
    try:
        return any(str(folder) in part for part in process.cmdline())
    except psutil.Error:
        return False
