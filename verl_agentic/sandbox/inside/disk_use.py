"""The disk space of a box without a file system of its own. Code changes the files meanwhile, and may hide them."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from typing import NamedTuple

from . import files, processes

_ENTRY_BYTES = 4096  # counted per name, in addition to the content
_DISK_BLOCK = 512
_MAX_CPU_S = 0.5
_MAX_TRIES = 3
_FILTERS = "Seccomp_filters"
_MAX_MAPS = 4 * 2**20
_NO_FILES = (b"/memfd:", b"/dev/zero", b"/SYSV")  # memory that is counted elsewhere


class Disk(NamedTuple):
    """Folders, as descriptors, and their maximum size together."""

    folders: tuple[int, ...]
    max_bytes: int


class _FullError(Exception):
    """More than allowed, or hidden from counting."""


def is_full(disk: Disk) -> bool:
    """Returns whether the files of a box exceed the maximum size.

    Counts names, files without a name that a process has open or mapped, and files in unreadable folders. What cannot
    be counted is too much: processes that hide their descriptors, very deep trees, and what takes too long.
    """
    count = _Count(disk.max_bytes)
    try:
        for folder in disk.folders:
            count.add_folder(folder, 0)
        count.add_nameless()
    except (_FullError, OSError):
        return True
    return False


class _Count:
    def __init__(self, max_bytes: int) -> None:
        self._remaining_bytes, self._mapped_bytes = max_bytes, max_bytes // 8
        self._deadline = time.process_time() + _MAX_CPU_S
        self._inodes: set[tuple[int, int]] = set()

    def add_folder(self, folder: int, depth: int) -> None:
        """Adds everything below an open folder."""
        with files.readable(folder):
            for name, status in self._list_entries(folder):
                self._add_bytes(_ENTRY_BYTES)
                if not stat.S_ISDIR(status.st_mode):
                    self._add_file(status, has_others=status.st_nlink > 1)
                elif depth == files.MAX_DEPTH:
                    raise _FullError
                else:
                    with contextlib.suppress(FileNotFoundError, NotADirectoryError), _open_inner(name, folder) as inner:
                        self.add_folder(inner, depth + 1)

    def add_nameless(self) -> None:
        """Adds the files without a name that processes of the box have open or mapped."""
        pids = processes.others()
        for pid in pids:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                for task in os.listdir(f"/proc/{pid}/task"):  # a thread may have descriptors of its own
                    self._add_open_files(f"/proc/{pid}/task/{task}")
        inodes = {inode for _, inode in self._inodes}
        for pid in pids:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                self._add_mapped_files(f"/proc/{pid}/maps", inodes)

    def _list_entries(self, folder: int) -> list[tuple[str, os.stat_result]]:
        entries = []
        for _ in range(_MAX_TRIES):
            with contextlib.suppress(PermissionError), os.scandir(folder) as scan:
                for entry in scan:
                    with contextlib.suppress(FileNotFoundError):
                        entries.append((entry.name, entry.stat(follow_symlinks=False)))
                    if len(entries) * _ENTRY_BYTES > self._remaining_bytes:
                        raise _FullError
                return entries
            os.fchmod(folder, 0o700)  # code has changed it in this moment
            entries.clear()
        raise _FullError

    def _add_open_files(self, task: str) -> None:
        for _ in range(_MAX_TRIES):
            try:
                for status in _nameless_files(f"{task}/fd"):
                    self._add_file(status, has_others=True)
                return
            except PermissionError:
                if not _hides_itself(task):
                    return  # it just begins or ends
        raise _FullError

    def _add_mapped_files(self, path: str, inodes: set[int]) -> None:
        with open(path, "rb") as file:
            text = file.read(_MAX_MAPS)
        if len(text) == _MAX_MAPS:
            raise _FullError
        for line in text.splitlines() if b" (deleted)" in text else ():
            fields = line.split(None, 5)
            if not line.endswith(b" (deleted)") or fields[5].startswith(_NO_FILES) or int(fields[4]) in inodes:
                continue
            inodes.add(int(fields[4]))
            self._add_bytes(self._mapped_bytes)  # the size of the whole file is unknown

    def _add_file(self, status: os.stat_result, *, has_others: bool) -> None:
        key = (status.st_dev, status.st_ino)
        if has_others and key in self._inodes:
            return  # another name of the same file
        if has_others:
            self._inodes.add(key)
        self._add_bytes(status.st_blocks * _DISK_BLOCK)

    def _add_bytes(self, num_bytes: int) -> None:
        self._remaining_bytes -= num_bytes
        if self._remaining_bytes < 0 or time.process_time() > self._deadline:
            raise _FullError


@contextlib.contextmanager
def _open_inner(name: str, above: int) -> Iterator[int]:
    descriptor = files.open_folder(name, above)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _nameless_files(folder: str) -> Iterator[os.stat_result]:
    """Yields the regular files without a name among the open ones of a task."""
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            status, target = os.stat(f"{folder}/{name}"), os.fsencode(os.readlink(f"{folder}/{name}"))
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 0 and not target.startswith(_NO_FILES):
                yield status


def _hides_itself(task: str) -> bool:
    """Returns whether a task runs code, of which nobody may read what it has open. It does not if it is ending."""
    status = _read_status(task)
    own_status = _read_status("/proc/self")
    return "VmSize" in status and int(status.get(_FILTERS, 0)) > int(own_status.get(_FILTERS, 0))


def _read_status(task: str) -> dict[str, str]:
    with contextlib.suppress(OSError), open(f"{task}/status", errors="replace") as file:
        return dict(line.split(":", 1) for line in file if ":" in line)
    return {}
