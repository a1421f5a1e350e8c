"""Memory outside the heap, and how much of it a process namespace uses.

Programs are forked from a box and inherit its memory. What an execution brings and prints is therefore kept in pages
that can be dropped: freed heap would still hold it, readable by the next execution.
"""

from __future__ import annotations

import contextlib
import mmap
import os

from . import processes

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Memory:
    """Bytes that can be forgotten."""

    def __init__(self, size: int, *, is_inherited: bool = True) -> None:
        """Takes `size` bytes of zeros; the kernel gives pages when they are written. What is not inherited is missing
        in every process that is forked."""
        self._map = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if not is_inherited:
            self._map.madvise(mmap.MADV_DONTFORK)
        self.view = memoryview(self._map)[:size]

    def forget(self) -> None:
        """Gives the pages back: they read as zeros from now on, whoever still holds a view."""
        self._map.madvise(mmap.MADV_DONTNEED)


def used_bytes() -> int:
    """Returns what all processes here but the box use; a page that several share counts once.

    For users who may make no control group. A process that hides its pages counts with all that it maps.
    """
    return sum(map(_used_by, processes.others()))


def _used_by(pid: int) -> int:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        for line in file:
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    with contextlib.suppress(OSError), open(f"/proc/{pid}/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES
    return 0
