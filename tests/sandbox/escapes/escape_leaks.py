"""Traces that an execution could leave on this machine, recorded before and after."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_agentic.sandbox.boxes import cgroups, reaper
from verl_agentic.sandbox.inside import rootfs


@dataclass(frozen=True)
class Standing:
    """Traces on this machine at one moment."""

    processes: frozenset[int]
    """Descendants of this process: zygotes, idle boxes, and whatever else has not ended."""
    mounts: frozenset[str]
    """Those that a sandbox makes, were they to show here; other programs of this machine may mount what they like."""
    control_groups: frozenset[str]
    """With the processes in them."""
    shared_memory: frozenset[str]
    """System V segments, and files with the mark."""
    folders: frozenset[str]

    @classmethod
    def now(cls, mark: str) -> Standing:
        """Looks."""
        return cls(
            processes=frozenset(descendants(os.getpid())),
            mounts=frozenset(_mounts()),
            control_groups=frozenset(_groups()),
            shared_memory=frozenset(
                [*Path("/proc/sysvipc/shm").read_text().splitlines(), *_marked("/dev/shm", mark)],
            ),
            folders=frozenset([*_marked(tempfile.gettempdir(), mark), *_marked(tempfile.gettempdir(), reaper.owner())]),
        )

    def more_than(self, before: Standing) -> dict[str, set[Any]]:
        """Returns what is here now and was not before."""
        names = ("processes", "mounts", "control_groups", "shared_memory", "folders")
        more = {name: set(getattr(self, name)) - set(getattr(before, name)) for name in names}
        return {name: values for name, values in more.items() if values}


def wait_for_nothing_left(before: Standing, mark: str, *, is_expected: Callable[[int], bool], within_s: float) -> dict:
    """Returns what is left, after the kernel has had time to take it away; nothing when all is well.

    Args:
        before: what was there.
        mark: in the names of what probes make.
        is_expected: whether a process may be there; asked for those that were not before.
        within_s: how long to wait.
    """
    deadline = time.monotonic() + within_s
    while True:
        left = Standing.now(mark).more_than(before)
        left["processes"] = {pid for pid in left.get("processes", ()) if not is_expected(pid)}
        if not any(left.values()) or time.monotonic() > deadline:
            return {name: values for name, values in left.items() if values}
        time.sleep(0.02)


def descendants(root: int) -> set[int]:
    """Returns all processes below one, those that have not been waited for included."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                parent = int(Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(name))
    found, queue = set(), [root]
    while queue:
        for child in children.get(queue.pop(), ()):
            found.add(child)
            queue.append(child)
    return found


def is_box(pid: int) -> bool:
    """Tells whether a process is an idle box, which replaced another one: process 1 of a namespace of its own, or one
    without namespaces that a zygote has made."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return False
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    is_first = lines.get("NSpid", "").split()[1:] == ["1"]
    return (is_first or _is_zygote(int(lines["PPid"]))) and not children


def _is_zygote(pid: int) -> bool:
    """Tells whether a process is a zygote of boxes without namespaces; these have its command line, too."""
    try:
        return os.getsid(pid) == pid and "landlock_box" in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False


def _mounts() -> list[str]:
    own = {"/", "/proc", "/usr", "/stage", "/etc", "/dev", *rootfs.OWN_MOUNTS}
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [line for line in lines if line.split()[1] in own or reaper.PREFIX in line]


def _groups() -> list[str]:
    mine = [folder for folder in cgroups.all_folders() if folder.name.startswith(reaper.owner())]
    return [f"{folder}: {_num_processes(folder)}" for folder in mine]


def _num_processes(folder: Path) -> int:
    try:
        return len((folder / "cgroup.procs").read_text().split())
    except OSError:
        return 0


def _marked(folder: str, mark: str) -> list[str]:
    return [name for name in os.listdir(folder) if mark in name]
