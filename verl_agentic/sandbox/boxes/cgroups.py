"""Control groups: limits on memory and processes of a whole sandbox, if this process may create them."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_PARENT = "verl_agentic"
_CONTROLLERS = ("memory", "pids")


@dataclass
class ControlGroup:
    """One group; with control groups v1 it is a folder per controller."""

    name: str
    is_v2: bool
    folders: dict[str, Path] = field(default_factory=dict)
    _limits: tuple[int, int] | None = None
    _events: int = -1

    def limit(self, *, memory_bytes: int, processes: int) -> None:
        """Sets the limits of all processes in the group together."""
        if self._limits == (memory_bytes, processes):
            return
        self._limits = None
        if self.is_v2:
            self._write_limit("memory", "memory.max", memory_bytes)
            self._write_limit("memory", "memory.swap.max", 0, optional=True)
        else:
            # Must not exceed the limit of memory and swap, which may be lower now.
            self._write_limit("memory", "memory.memsw.limit_in_bytes", -1, optional=True)
            self._write_limit("memory", "memory.limit_in_bytes", memory_bytes)
            self._write_limit("memory", "memory.memsw.limit_in_bytes", memory_bytes, optional=True)
        self._write_limit("pids", "pids.max", processes)
        self._limits = memory_bytes, processes

    def enter(self, pid: int) -> None:
        """Moves a process and its future children into the group."""
        for folder in set(self.folders.values()):
            (folder / "cgroup.procs").write_text(str(pid))

    def oom_kills(self) -> int:
        """Returns the number of processes that the kernel killed here for memory."""
        if self._events < 0:  # stays open, because it is read after every execution
            name = "memory.events" if self.is_v2 else "memory.oom_control"
            self._events = os.open(self.folders["memory"] / name, os.O_RDONLY)
        counts = dict(line.split() for line in os.pread(self._events, 4096, 0).splitlines())
        return int(counts.get(b"oom_kill", 0))

    def remove(self) -> None:
        """Removes the group after its processes ended; retries, because the kernel may be late."""
        if self._events >= 0:
            os.close(self._events)
            self._events = -1
        for folder in set(self.folders.values()):
            for _ in range(50):
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.02)
                else:
                    break

    def _write_limit(self, controller: str, name: str, value: int, *, optional: bool = False) -> None:
        with contextlib.suppress(*((OSError,) if optional else ())):
            (self.folders[controller] / name).write_text(str(value))


def why_not(owner: str) -> str | None:
    """Returns why control groups cannot be used here, or None; `owner` is the prefix of their names."""
    try:
        group = make_group(f"{owner}_probe")
        try:
            group.limit(memory_bytes=1 << 30, processes=64)
        finally:
            group.remove()
    except OSError as cause:
        return str(cause)
    return None


def make_group(name: str) -> ControlGroup:
    """Makes a group. Raises OSError if control groups are read-only or owned by another user."""
    is_v2 = (_ROOT / "cgroup.controllers").is_file()
    group = ControlGroup(name, is_v2)
    try:
        for controller in _CONTROLLERS:
            parent = (_ROOT if is_v2 else _ROOT / controller) / _PARENT
            folder = parent / name
            parent.mkdir(exist_ok=True)
            if is_v2:
                (parent / "cgroup.subtree_control").write_text("+memory +pids")
            folder.mkdir(exist_ok=True)
            group.folders[controller] = folder
    except OSError:
        group.remove()
        raise
    return group


def all_folders() -> list[Path]:
    """Returns the folders of all groups, also of other processes."""
    parents = {_ROOT / _PARENT, *(_ROOT / controller / _PARENT for controller in _CONTROLLERS)}
    folders = []
    for parent in sorted(parents):
        with contextlib.suppress(OSError):
            folders += [Path(entry.path) for entry in os.scandir(parent) if entry.is_dir()]
    return folders
