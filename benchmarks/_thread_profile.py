"""A sampling profiler that weighs each sample by the CPU time of its thread: one that waits costs nothing."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import FrameType

_EVERY_S, _SWITCH_S = 0.002, 0.0001
Stack = tuple[tuple[str, str], ...]
"""File and function of each frame, the innermost first."""


class ThreadProfile:
    """Samples the stacks of all threads of this process while it is entered."""

    def __init__(self, label_of: Callable[[Stack], str]) -> None:
        """Takes the function that names the work of a stack."""
        self.cpu_s: Counter[str] = Counter()
        """Label -> CPU seconds."""
        self.stacks: Counter[Stack] = Counter()
        """Stack -> CPU seconds."""
        self._label_of = label_of
        self._clocks: dict[int, tuple[int, float]] = {}
        self._switch_s = sys.getswitchinterval()
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

    def _run(self) -> None:
        own = threading.get_ident()
        self._sample(own)
        self.stacks.clear()
        while not self._stopped.wait(_EVERY_S):
            self._sample(own)
        for stack, seconds in self.stacks.items():
            self.cpu_s[self._label_of(stack)] += seconds  # pyright: ignore[reportArgumentType]

    def _sample(self, own: int) -> None:
        frames = sys._current_frames()
        for thread in threading.enumerate():
            if thread.ident is None or thread.ident == own or thread.ident not in frames:
                continue
            try:
                clock, before = self._clocks.get(thread.ident) or (time.pthread_getcpuclockid(thread.ident), 0.0)
                now = time.clock_gettime(clock)
            except (OSError, ProcessLookupError):  # it has just ended
                continue
            self._clocks[thread.ident] = clock, now
            if now > before:
                self.stacks[_stack(frames[thread.ident])] += now - before  # pyright: ignore[reportArgumentType]


def _stack(frame: FrameType | None) -> Stack:
    names: list[tuple[str, str]] = []
    while frame is not None:
        names.append((frame.f_code.co_filename, frame.f_code.co_name))
        frame = frame.f_back
    return tuple(names)
