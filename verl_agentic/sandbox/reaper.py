"""Finds and removes what runs left behind that could not clean up: killed with `kill -9`, or by a crash of the machine.

Whatever outlives a process carries its owner in its name: the process's number, when it started (numbers are used
again), and its process namespace (elsewhere the same number is another process).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path

from verl_agentic.sandbox import cgroups

PREFIX = "verl_agentic_"
_OWNER = re.compile(r"p(\d+)-(\d+)-(\d+)(?:_|$)")


def owner() -> str:
    """Returns the name of this process, for what it makes and must remove; `is_dead` understands it."""
    pid = os.getpid()
    return f"p{pid}-{_start_time(pid)}-{_namespace()}"


def is_dead(name: str) -> bool:
    """Tells whether `name` begins with the name of a process that has surely ended; False for any other text."""
    match = _OWNER.match(name)
    if match is None or int(match[3]) != _namespace():
        return False
    return _start_time(int(match[1])) != int(match[2])


def reap() -> list[str]:
    """Removes the folders and control groups of dead runs, as far as this user may; returns what is gone."""
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
    """Makes a temporary folder that is removed by the next run if this one cannot."""
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{owner()}_{purpose}_"))


def _start_time(pid: int) -> int | None:
    """Returns when a process started, in clock ticks since the machine did; None when there is none, or its remains."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else int(fields[18])


def _namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino
