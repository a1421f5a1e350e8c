"""Processes of this namespace."""

from __future__ import annotations

import contextlib
import os

from . import syscalls


def all_but(trees_of: set[int]) -> list[int]:
    """Returns all other processes except `trees_of` and their descendants."""
    parents = _read_parents()
    return [pid for pid in parents if not _trace_lineage(pid, parents) & trees_of]


def others() -> list[int]:
    """Returns all other processes that this one may signal: those of its namespace or Landlock domain."""
    own_pid = os.getpid()
    return [pid for name in os.listdir("/proc") if name.isdigit() and (pid := int(name)) != own_pid and _is_ours(pid)]


def reap(pids: list[int]) -> None:
    """Reaps those that are children of this process; the others will become children."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def reap_all() -> None:
    """Reaps all children of this process."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def remove_shared_memory() -> None:
    """Removes System V shared memory, semaphores and message queues, which outlive their processes."""
    for kind, remove in (("shm", syscalls.remove_shm), ("sem", syscalls.remove_sem), ("msg", syscalls.remove_msg)):
        with open(f"/proc/sysvipc/{kind}") as table:
            for line in table.readlines()[1:]:
                with contextlib.suppress(OSError):
                    remove(int(line.split()[1]))


def _read_parents() -> dict[int, int]:
    parents = {}
    for pid in others():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
            # The name, in brackets, may hold anything.
            parents[pid] = int(file.read().rpartition(b")")[2].split()[1])
    return parents


def _is_ours(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _trace_lineage(pid: int, parents: dict[int, int]) -> set[int]:
    line: set[int] = set()
    while pid not in line and pid in parents:
        line.add(pid)
        pid = parents[pid]
    return line
