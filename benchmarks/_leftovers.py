"""Leftovers of a run: processes, control groups, folders, mounts and tasks."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from verl_agentic.sandbox.boxes import cgroups, reaper


def groups() -> Iterator[str]:
    """Yields the names of this process's control groups."""
    return (str(folder) for folder in cgroups.all_folders() if folder.name.startswith(reaper.owner()))


async def leftovers(groups_before: set[str], *, settle_s: float = 5.0) -> list[str]:
    """Returns what is left when the kernel, and tasks that are ending, have had a moment to finish."""
    for _ in range(round(settle_s / 0.05)):
        left = [
            *(f"task {task!r}" for task in asyncio.all_tasks() - {asyncio.current_task()}),
            *(f"process {pid}" for pid in descendants(os.getpid())),
            *(f"control group {name}" for name in set(groups()) - groups_before),
            *_folders_and_mounts(),
        ]
        if not left:
            break
        await asyncio.sleep(0.05)
    return left


def descendants(root: int) -> set[int]:
    """Returns the numbers of all processes below one."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                stat = Path(f"/proc/{name}/stat").read_text(errors="replace")
            except OSError:
                continue
            parents[int(name)] = int(stat.rpartition(")")[2].split()[1])
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {root}


def _folders_and_mounts() -> list[str]:
    names = [name for name in os.listdir(tempfile.gettempdir()) if name.startswith(reaper.PREFIX + reaper.owner())]
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if reaper.PREFIX in line]
    return [*(f"folder {name}" for name in names), *(f"mount {line}" for line in mounts)]
