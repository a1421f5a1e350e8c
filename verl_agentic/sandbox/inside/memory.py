"""Memory outside of the heap, and the memory usage of a process namespace.

Programs are forked from a box and inherit its memory. So inputs and outputs of an execution are kept in pages that can
be dropped. Freed heap would still be readable by the next execution.
"""

from __future__ import annotations

import contextlib
import mmap
import os

from . import processes

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Memory:
    """Bytes whose pages can be dropped."""

    def __init__(self, size: int, *, is_inherited: bool = True) -> None:
        """Maps `size` bytes of zeros, allocated on write. If not inherited, forked processes lack them."""
        self._map = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if not is_inherited:
            self._map.madvise(mmap.MADV_DONTFORK)
        self.view = memoryview(self._map)[:size]

    def forget(self) -> None:
        """Drops the pages; existing views read zeros."""
        self._map.madvise(mmap.MADV_DONTNEED)


def used_bytes() -> int:
    """Returns the memory of all processes except the box; shared pages count once.

    For users without control groups. A process that hides its pages counts with everything it maps.
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
