"""A box without namespaces: its programs have folders of the machine, and single executions have folders of their own.

<folder>/home/work, home/tmp     the sandbox's, until a reset
<folder>/fresh/work, fresh/tmp   of a single execution
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from . import box, child, files, frames

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_SNAPSHOT_DISKS = 4  # a snapshot may be larger than the disk: holes count

if TYPE_CHECKING:
    State = list[tuple[Any, ...]]


class FolderBox(box.Box):
    """The base of boxes without namespaces."""

    def __init__(self, connection: frames.Connection, setup: dict[str, Any], *, folder: str) -> None:
        """Takes the connection, the trainer's configuration, and the folder of the box."""
        super().__init__(connection, setup)
        self._folder = folder
        self._snapshot_files: list[int] = []
        self._fresh: child.Station | None = None
        self._unused: State | None = None

    def _run_program(self, request: dict[str, Any], blob: memoryview) -> box.Answer:
        return super()._run_program(self._adapt_request(request), blob)

    def _run_fresh(self, request: dict[str, Any], blob: memoryview) -> box.Answer:
        if self._fresh is None:
            self._fresh = self._make_place("fresh")
            self._unused = _read_state(self._fresh)
        station = self._fresh
        try:
            return self._execute_program(request, blob, namespaces=0, mounts=(), work=station.root, station=station)
        finally:
            # Most programs write no file, and making folders costs more than checking them.
            if _read_state(station) != self._unused or self._unused is None:
                self._fresh = None
                self._remove_place(station)

    def _open_session(self, request: dict[str, Any], blob: memoryview) -> box.Answer:
        return super()._open_session(self._adapt_request(request), blob)

    def _take_snapshot(self, request: dict[str, Any], blob: memoryview) -> box.Answer:
        """Packs the working folder into an unnamed file, which code of the same user cannot change."""
        self._end_all()
        os.fchmod(self._station.folders[0], 0o700)
        snapshot = self._unnamed_file()
        try:
            with open(snapshot, "wb", closefd=False) as file:
                files.pack(self._station.root, file, max_bytes=_SNAPSHOT_DISKS * self._setup["disk_mb"] * 2**20)
        except OSError as error:
            os.close(snapshot)
            return {"refused": f"the working folder could not be kept, got {error}"}, ()
        self._snapshot_files.append(snapshot)
        return {"snapshot": len(self._snapshot_files)}, ()

    def _reset_folders(self, request: dict[str, Any], blob: memoryview) -> box.Answer:
        """Makes new folders and unpacks the snapshot, if any, into the working folder."""
        number = request["snapshot"]
        if number is not None and not 1 <= number <= len(self._snapshot_files):
            return {"bad_path": f"snapshots 1 to {len(self._snapshot_files)} are there, got {number}"}, ()
        self._end_all()
        self._remove_place(self._station)
        self._station = self._make_place("home")
        if number is not None:
            os.lseek(self._snapshot_files[number - 1], 0, os.SEEK_SET)
            with open(self._snapshot_files[number - 1], "rb", closefd=False) as file:
                files.unpack(file, self._station.root)
        return {}, ()

    def _make_place(self, name: str) -> child.Station:
        """Returns a place for programs with empty folders `work` and `tmp`."""
        raise NotImplementedError

    def _remove_place(self, station: child.Station) -> None:
        """Removes everything that programs left in a place."""
        raise NotImplementedError

    def _unnamed_file(self) -> int:
        """Returns a descriptor of a new file without a name."""
        raise NotImplementedError

    def _adapt_request(self, request: dict[str, Any]) -> dict[str, Any]:
        """Returns a request with limits that fit this kind of box."""
        raise NotImplementedError


def _read_state(station: child.Station) -> State | None:
    """Returns the state of a place's folders and their entries; None if it is not readable.

    Any change by code updates the ctime, which programs cannot set.
    """
    try:
        return [_state_of(folder) for folder in station.folders]
    except OSError:
        return None


def _state_of(folder: int) -> tuple[Any, ...]:
    names, now = sorted(os.listdir(folder)), os.fstat(folder)
    return names, now.st_ino, now.st_mode, now.st_atime_ns, now.st_mtime_ns, now.st_ctime_ns
