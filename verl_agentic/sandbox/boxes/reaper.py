"""Finds and removes remains of runs that were killed with `kill -9` or by a crash of the machine.

Persistent objects have their owner in their name: process number, start time (numbers are reused), and process
namespace (numbers differ per namespace).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path

from verl_agentic.sandbox.boxes import cgroups

PREFIX = "verl_agentic_"
_OWNER = re.compile(r"p(\d+)-(\d+)-(\d+)(?:_|$)")


def owner() -> str:
    """Returns the owner name of this process, for `is_dead`."""
    pid = os.getpid()
    return f"p{pid}-{_start_time(pid)}-{_read_namespace()}"


def is_dead(name: str) -> bool:
    """Returns whether `name` starts with the owner name of an ended process."""
    match = _OWNER.match(name)
    if match is None or int(match[3]) != _read_namespace():
        return False
    return _start_time(int(match[1])) != int(match[2])


def reap() -> list[str]:
    """Removes the folders and control groups of dead runs, if this user may; returns the removed ones."""
    removed = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(tempfile.gettempdir()):
            is_ours = entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False)
            if is_ours and is_dead(entry.name[len(PREFIX) :]):
                shutil.rmtree(entry.path, ignore_errors=True)
                if not os.path.lexists(entry.path):
                    removed.append(entry.path)
    for folder in cgroups.all_folders():
        if is_dead(folder.name):
            with contextlib.suppress(OSError):
                folder.rmdir()
                removed.append(str(folder))
    return removed


def make_folder(purpose: str) -> Path:
    """Makes a temporary folder, which the next run removes if this one cannot."""
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{owner()}_{purpose}_"))


def _start_time(pid: int) -> int | None:
    """Returns the start time of a process, in clock ticks since boot; None if it does not exist or is a zombie."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else int(fields[18])


def _read_namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino
