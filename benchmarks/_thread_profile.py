"""A sampling profiler that weighs each sample by the CPU time of its thread: one that waits costs nothing."""

from __future__ import annotations

import faulthandler
import os
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator

_EVERY_S, _SWITCH_S = 0.004, 0.0001
_MAX_BYTES = 1 << 22
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x([0-9a-f]+)[^\n]*\n((?:  .*\n?)*)", re.M)
_FRAME = re.compile(r'^  File "(.*)", line \d+ in (.*)$', re.M)
Stack = tuple[tuple[str, str], ...]
"""File and function of each frame, the innermost first."""


class ThreadProfile:
    """Samples the stacks of all threads of this process while it is entered."""

    def __init__(self, label_of: Callable[[Stack], str]) -> None:
        """Takes the function that names the work of a stack."""
        self.cpu_s: dict[str, float] = defaultdict(float)
        """Label -> CPU seconds."""
        self.stacks: dict[Stack, float] = defaultdict(float)
        """Stack -> CPU seconds."""
        self._label_of = label_of
        self._clocks: dict[int, tuple[int, float]] = {}
        """Number of a thread in the kernel -> open file with its CPU time, and the time at the last sample."""
        self._switch_s = sys.getswitchinterval()
        self._dump = os.memfd_create("stacks")
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ThreadProfile:
        # Else a sample waits until a thread gives the interpreter up itself, and only finds calls that do so.
        sys.setswitchinterval(_SWITCH_S)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        sys.setswitchinterval(self._switch_s)
        for file in (self._dump, *(file for file, _ in self._clocks.values())):
            os.close(file)

    def _run(self) -> None:
        own = threading.get_ident()
        self._sample(own)
        self.stacks.clear()
        while not self._stopped.wait(_EVERY_S):
            self._sample(own)
        for stack, seconds in self.stacks.items():
            self.cpu_s[self._label_of(stack)] += seconds

    def _sample(self, own: int) -> None:
        numbers = {thread.ident: thread.native_id for thread in threading.enumerate() if thread.ident != own}
        for ident, stack in self._read_stacks():
            seconds = self._read_clock(numbers.get(ident))
            if seconds > 0.0:
                self.stacks[stack] += seconds

    def _read_stacks(self) -> Iterator[tuple[int, Stack]]:
        """Yields thread and stack. Python code must not walk them: their threads would go on meanwhile, and the frames
        that it holds would end the process."""
        os.ftruncate(self._dump, 0)
        os.lseek(self._dump, 0, os.SEEK_SET)
        faulthandler.dump_traceback(self._dump, all_threads=True)
        text = os.pread(self._dump, _MAX_BYTES, 0).decode(errors="replace")
        for ident, frames in _THREAD.findall(text):
            yield int(ident, 16), tuple(_FRAME.findall(frames))

    def _read_clock(self, number: int | None) -> float:
        """Returns the CPU seconds of a thread since the last call; 0 if it has just ended.

        The clock of `time.pthread_getcpuclockid` ends the process if its thread ends meanwhile.
        """
        if number is None:
            return 0.0
        try:
            if number not in self._clocks:
                self._clocks[number] = os.open(f"/proc/self/task/{number}/schedstat", os.O_RDONLY), 0.0
            file, before = self._clocks[number]
            now = int(os.pread(file, 64, 0).split()[0]) / 1e9
        except OSError:
            return 0.0
        self._clocks[number] = file, now
        return now - before
