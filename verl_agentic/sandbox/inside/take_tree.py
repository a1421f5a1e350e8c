"""Reads a tree of files out of a box. This process is trusted; the files are not, and code may change them meanwhile.

Each folder is opened below its parent's descriptor and no link is followed, so the walk cannot leave the tree.
"""

from __future__ import annotations

import itertools
import os
import stat
from typing import Any

from . import files
from .memory import Memory

MAX_DEPTH = 64
_MAX_NAMES = 1 << 21  # characters of all paths; an answer has room for their escaped form
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY  # a pipe without a writer must not block
_WHOLE = "."


class _FullError(Exception):
    """More entries than allowed."""


class Taking:
    """A walk through a tree: the files that it read, and the entries that it skipped."""

    def __init__(self, *, max_bytes: int, max_files: int) -> None:
        self.files: list[list[Any]] = []
        """(path, size, mode) of each file, in the order of `contents`."""
        self.skipped: list[list[str]] = []
        """(path, reason) of each entry that was not read."""
        self._memory = Memory(max_bytes).view
        self._end = 0
        self._entries_left, self._names_left = max_files, _MAX_NAMES

    @property
    def contents(self) -> memoryview:
        """The contents of the files one after the other, outside of the heap."""
        return self._memory[: self._end]

    def folder(self, descriptor: int, path: str, depth: int) -> None:
        """Reads everything below an open folder, in the order of names. Raises _FullError at a limit."""
        with os.scandir(descriptor) as entries:
            names = sorted(entry.name for entry in itertools.islice(entries, self._entries_left + 1))
        for name in names:
            inner = name if path == _WHOLE else f"{path}/{name}"
            self._entries_left -= 1
            self._names_left -= len(inner)
            if min(self._entries_left, self._names_left) < 0:
                self._skip_entry(path, "too many")
                raise _FullError
            try:
                self._take_entry(descriptor, name, inner, depth)
            except FileNotFoundError:
                continue  # removed meanwhile
            except OSError:
                self._skip_entry(inner, "unreadable")

    def _take_entry(self, folder: int, name: str, path: str, depth: int) -> None:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if not _is_utf8(name):
            self._skip_entry(path, "not UTF-8")
        elif stat.S_ISLNK(mode):
            self._skip_entry(path, "link")
        elif stat.S_ISDIR(mode):
            if depth == MAX_DEPTH:
                self._skip_entry(path, "too deep")
                return
            descriptor = os.open(name, _FOLDER, dir_fd=folder)
            try:
                self.folder(descriptor, path, depth + 1)
            finally:
                os.close(descriptor)
        elif stat.S_ISREG(mode):
            descriptor = os.open(name, _FILE, dir_fd=folder)
            try:
                self._take_file(descriptor, path)
            finally:
                os.close(descriptor)
        else:
            self._skip_entry(path, "special")

    def _take_file(self, descriptor: int, path: str) -> None:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            self._skip_entry(path, "special")
        elif status.st_size > len(self._memory) - self._end:
            self._skip_entry(path, "too large")
        else:
            count = files.read_into(descriptor, self._memory[self._end : self._end + status.st_size])
            self.files.append([path, count, stat.S_IMODE(status.st_mode) & 0o777])
            self._end += count

    def _skip_entry(self, path: str, reason: str) -> None:
        self.skipped.append([path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"), reason])


def take(root: int | str, path: str, *, max_bytes: int, max_files: int) -> Taking:
    """Reads the regular files below `path`, a path below `root`. Entries that it cannot or must not read are named.

    Args:
        max_bytes: maximum size of all contents together.
        max_files: maximum number of entries: files, folders and skipped ones.
    """
    taking = Taking(max_bytes=max_bytes, max_files=max_files)
    try:
        with files.folder_of(root, f"{path}/x", user=None, create=False) as folder:
            taking.folder(folder, _WHOLE, 0)
    except _FullError:
        pass
    except (OSError, files.BadPathError):
        taking.skipped.append([_WHOLE, "no folder"])
    return taking


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
