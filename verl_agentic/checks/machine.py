"""Checks of this machine that need neither torch, verl nor ray."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import psutil
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from verl_agentic.base.finding import Finding
from verl_agentic.sandbox.elsewhere.providers import states
from verl_agentic.sandbox.pools.backends import BackendProbe, probe_all

_PACKAGES = ("verl-agentic", "verl", "torch", "ray", "transformers", "tensordict", "TransferQueue", "math-verify")
_NEEDED_MEMORY_GB, _NEEDED_DISK_GB, _NEEDED_SHM_GB = 8.0, 2.0, 0.5


def machine_checks(*, supported_verl: str = "") -> list[Finding]:
    """Returns all checks of this module.

    Args:
        supported_verl: versions of verl that fit although pip would not install them, as a specifier.
    """
    checks: list[Callable[[], Finding]] = [
        _check_python,
        _check_cpu,
        _check_cores,
        _check_memory,
        _check_shm,
        _check_disk,
        _check_accelerator,
    ]
    return [*_check_versions(supported_verl), *(check() for check in checks), *_check_sandboxes(), _list_providers()]


def _check_python() -> Finding:
    python_version = platform.python_version()
    if (3, 10) <= sys.version_info[:2] < (3, 13):
        return Finding(check="python", status="ok", found=python_version)
    return Finding(check="python", status="fail", found=python_version, advice="verl needs Python 3.10 to 3.12")


def _check_versions(supported_verl: str = "") -> list[Finding]:
    needed, supported = _read_requirements(), {"verl": supported_verl}
    return [
        _check_version(package, needed.get(canonicalize_name(package)), supported.get(package, ""))
        for package in _PACKAGES
    ]


def _check_version(package: str, needed: tuple[SpecifierSet, bool] | None, supported: str) -> Finding:
    allowed, is_strict = needed or (SpecifierSet(), False)
    install = f"pip install '{package.lower()}{allowed}'"
    try:
        installed_version = version(package)
    except PackageNotFoundError:
        return Finding(check=package, status="fail", found="not installed", advice=install)
    is_supported = supported and SpecifierSet(supported).contains(installed_version, prereleases=True)
    if is_supported or allowed.contains(installed_version, prereleases=True):
        return Finding(check=package, status="ok", found=installed_version)
    return Finding(
        check=package,
        status="fail" if is_strict else "warn",
        found=f"{installed_version}, not {allowed}",
        advice=install,
    )


def _read_requirements() -> dict[str, tuple[SpecifierSet, bool]]:
    """Returns package -> (versions that our distribution requires, whether it needs the package or only suggests
    it)."""
    try:
        requirements = [Requirement(text) for text in requires("verl-agentic") or ()]
    except PackageNotFoundError:
        return {}
    versions_by_package = {}
    for requirement in requirements:
        is_strict = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if is_strict or (requirement.marker and requirement.marker.evaluate({"extra": "cpu"})):
            versions_by_package[canonicalize_name(requirement.name)] = requirement.specifier, is_strict
    return versions_by_package


def _check_cores() -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _read_cgroup_cores()
    description = f"{cores} usable" if quota is None else f"{cores} usable, the control group allows {quota:g}"
    is_enough = min(cores, quota or cores) >= 2
    return Finding(
        check="cores", status="ok" if is_enough else "warn", found=description, advice="" if is_enough else "2 or more"
    )


def _check_cpu() -> Finding:
    lines = (_read_text("/proc/cpuinfo") or "").splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return Finding(check="cpu", status="ok", found=models[0] if models else platform.machine())


def _check_memory() -> Finding:
    memory = psutil.virtual_memory()
    limit = _read_cgroup_limit()
    free = memory.available if limit is None else min(memory.available, limit - _read_cgroup_usage())
    description = f"{free / 2**30:.1f} GB free of {min(memory.total, limit or memory.total) / 2**30:.1f} GB"
    if free / 2**30 >= _NEEDED_MEMORY_GB:
        return Finding(check="memory", status="ok", found=description)
    return Finding(
        check="memory", status="fail", found=description, advice=f"a quickstart needs {_NEEDED_MEMORY_GB:g} GB"
    )


def _check_shm() -> Finding:
    return _check_space(
        "/dev/shm", Path("/dev/shm"), _NEEDED_SHM_GB, "Ray's object store lives there: docker run --shm-size=2g"
    )


def _check_disk() -> Finding:
    return _check_space("disk", Path.cwd(), _NEEDED_DISK_GB, "checkpoints need room")


def _check_space(name: str, path: Path, needed_gb: float, advice: str) -> Finding:
    if not path.is_dir():
        return Finding(check=name, status="warn", found="not there", advice=advice)
    free_gb = shutil.disk_usage(path).free / 2**30
    is_enough = free_gb >= needed_gb
    return Finding(
        check=name,
        status="ok" if is_enough else "warn",
        found=f"{free_gb:.1f} GB free",
        advice="" if is_enough else advice,
    )


def list_gpus() -> tuple[str, ...]:
    """Returns name and memory of each NVIDIA GPU of this machine, without torch, which takes seconds to import."""
    program = shutil.which("nvidia-smi")
    listed = _run_command([program, "--query-gpu=name,memory.total", "--format=csv,noheader"]) if program else None
    return tuple((listed or "").splitlines())


def _check_accelerator() -> Finding:
    gpus = "; ".join(list_gpus())
    if not gpus:
        return Finding(check="accelerator", status="ok", found="none: set VERL_PLATFORM=cpu to use the CPU")
    if not can_use_cuda():
        advice = "this build of torch has no CUDA; install one that has it to use the GPU"
        return Finding(check="accelerator", status="warn", found=gpus, advice=advice)
    return Finding(check="accelerator", status="ok", found=gpus)


def can_use_cuda() -> bool:
    """Tells whether the installed build of torch can use a GPU."""
    return "+cpu" not in _find_version("torch")


def _find_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _check_sandboxes() -> list[Finding]:
    """Returns the state of each backend; it fails only if none of them isolates."""
    probes = asyncio.run(probe_all())
    isolates = any(probe.works and probe.name != "local" for probe in probes)
    return [_check_sandbox(probe, isolates=isolates) for probe in probes]


def _check_sandbox(probe: BackendProbe, *, isolates: bool) -> Finding:
    name = f"sandbox {probe.name}"
    if probe.works:
        description = f"runs code in {probe.run_ms:.1f} ms, isolates by {probe.isolation}; cannot do: {probe.lacks}"
        return Finding(check=name, status="ok", found=description)
    if isolates and probe.name in ("docker", "landlock"):
        return Finding(check=name, status="ok", found=f"{probe.refusal} (another one works)")
    advice = "another one works, see docs/sandboxes.md" if isolates else "tools cannot run untrusted code"
    return Finding(check=name, status="warn" if isolates else "fail", found=probe.refusal, advice=advice)


def _list_providers() -> Finding:
    description = ". ".join(f"{name}: {state}" for name, state in states().items())
    return Finding(check="sandboxes elsewhere", status="ok", found=description)


def _read_cgroup_cores() -> float | None:
    both = _read_text("/sys/fs/cgroup/cpu.max")  # version 2
    quota, period = (
        both.split() if both else (_read_cgroup_v1("cpu/cpu.cfs_quota_us"), _read_cgroup_v1("cpu/cpu.cfs_period_us"))
    )
    return int(quota) / int(period) if quota and period and quota.isdigit() else None


def _read_cgroup_limit() -> int | None:
    text = _read_text("/sys/fs/cgroup/memory.max") or _read_cgroup_v1("memory/memory.limit_in_bytes")
    return int(text) if text and text.isdigit() else None


def _read_cgroup_usage() -> int:
    """Returns the used memory of the control group, in bytes, without the file cache."""
    used = _read_text("/sys/fs/cgroup/memory.current") or _read_cgroup_v1("memory/memory.usage_in_bytes")
    stat = _read_text("/sys/fs/cgroup/memory.stat") or _read_cgroup_v1("memory/memory.stat") or ""
    counts = dict(line.split() for line in stat.splitlines())
    cached = counts.get("total_inactive_file") or counts.get("inactive_file") or 0
    return max(0, int(used or 0) - int(cached))


def _read_cgroup_v1(name: str) -> str | None:
    return _read_text(f"/sys/fs/cgroup/{name}")


def _read_text(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _run_command(command: list[str]) -> str | None:
    """Returns the output of a command, or None if it is missing, fails or takes longer than 10 s."""
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout.strip()
