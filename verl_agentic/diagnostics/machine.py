"""What this machine has, looked at without torch, verl or ray. Each check says what it got and what to do."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import psutil

Status = Literal["ok", "warn", "fail"]
_PACKAGES = ("verl-agentic", "verl", "torch", "ray", "transformers", "tensordict", "TransferQueue", "math-verify")
_NEEDED_MEMORY_GB, _NEEDED_DISK_GB, _NEEDED_SHM_GB = 8.0, 2.0, 0.5
_DOCKER_SOCKET = "/var/run/docker.sock"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One line of the doctor."""

    name: str
    status: Status
    found: str
    """What there is."""
    advice: str = ""
    """What to do about it; empty when nothing has to be done."""


def machine_checks() -> list[Check]:
    """Returns all checks of this module."""
    checks: list[Callable[[], Check]] = [_python, _cores, _memory, _shm, _disk, _accelerator, _sandbox, _docker]
    return [*_versions(), *(check() for check in checks)]


def _python() -> Check:
    found = platform.python_version()
    if (3, 10) <= sys.version_info[:2] < (3, 13):
        return Check(name="python", status="ok", found=found)
    return Check(name="python", status="fail", found=found, advice="verl needs Python 3.10 to 3.12")


def _versions() -> list[Check]:
    checks = []
    for package in _PACKAGES:
        try:
            checks.append(Check(name=package, status="ok", found=version(package)))
        except PackageNotFoundError:
            checks.append(
                Check(name=package, status="fail", found="not installed", advice=f"pip install {package.lower()}")
            )
    return checks


def _cores() -> Check:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_cores()
    found = f"{cores} usable" if quota is None else f"{cores} usable, the control group allows {quota:g}"
    is_enough = min(cores, quota or cores) >= 2
    return Check(
        name="cores", status="ok" if is_enough else "warn", found=found, advice="" if is_enough else "2 or more"
    )


def _memory() -> Check:
    memory = psutil.virtual_memory()
    limit, used = _cgroup_bytes("memory.max"), _cgroup_bytes("memory.current")
    free = memory.available if limit is None else min(memory.available, limit - (used or 0))
    found = f"{free / 2**30:.1f} GB free of {min(memory.total, limit or memory.total) / 2**30:.1f} GB"
    if free / 2**30 >= _NEEDED_MEMORY_GB:
        return Check(name="memory", status="ok", found=found)
    return Check(name="memory", status="fail", found=found, advice=f"a quickstart needs {_NEEDED_MEMORY_GB:g} GB")


def _shm() -> Check:
    return _space(
        "/dev/shm", Path("/dev/shm"), _NEEDED_SHM_GB, "Ray's object store lives there: docker run --shm-size=2g"
    )


def _disk() -> Check:
    return _space("disk", Path.cwd(), _NEEDED_DISK_GB, "checkpoints need room")


def _space(name: str, path: Path, needed_gb: float, advice: str) -> Check:
    if not path.is_dir():
        return Check(name=name, status="warn", found="not there", advice=advice)
    free_gb = shutil.disk_usage(path).free / 2**30
    is_enough = free_gb >= needed_gb
    return Check(
        name=name,
        status="ok" if is_enough else "warn",
        found=f"{free_gb:.1f} GB free",
        advice="" if is_enough else advice,
    )


def _accelerator() -> Check:
    program = shutil.which("nvidia-smi")
    listed = _run([program, "--query-gpu=name,memory.total", "--format=csv,noheader"]) if program else None
    if listed:
        return Check(name="accelerator", status="ok", found="; ".join(listed.splitlines()))
    return Check(name="accelerator", status="ok", found="none: runs use the CPU with VERL_PLATFORM=cpu")


def _sandbox() -> Check:
    # Only the local sandbox runs code today; the others are what stronger ones will need.
    bubblewrap = "bubblewrap found" if shutil.which("bwrap") else "no bubblewrap"
    namespaces = "user namespaces usable" if _run(["unshare", "--user", "true"]) is not None else "no user namespaces"
    return Check(name="sandbox", status="ok", found=f"local (limits, no isolation); {bubblewrap}; {namespaces}")


def _docker() -> Check:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(2.0)
        try:
            client.connect(_DOCKER_SOCKET)
            client.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            answers = b" 200 " in client.recv(1024)
        except OSError:
            answers = False
    return Check(name="docker", status="ok", found="engine answers" if answers else "no engine (none is needed)")


def _cgroup_cores() -> float | None:
    text = _read("/sys/fs/cgroup/cpu.max")
    quota, _, period = (text or "max").partition(" ")
    return None if quota == "max" else int(quota) / int(period)


def _cgroup_bytes(name: str) -> int | None:
    text = _read(f"/sys/fs/cgroup/{name}")
    return int(text) if text and text.isdigit() else None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _run(command: list[str]) -> str | None:
    """Returns what a command prints, or None when it is missing, fails or takes longer than 10 s."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
