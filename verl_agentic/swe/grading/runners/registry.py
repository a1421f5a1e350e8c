"""The runners whose reports are read, and their toolchains on this machine."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

from verl_agentic.sandbox.boxes.box_client import DEFAULT_PATH
from verl_agentic.sandbox.inside.rootfs import PROGRAMS
from verl_agentic.swe.grading.runners.cargo import CARGO
from verl_agentic.swe.grading.runners.go import GO
from verl_agentic.swe.grading.runners.node import NODE
from verl_agentic.swe.grading.runners.report_runner import ReportRunner

REPORT_RUNNERS: Mapping[str, ReportRunner] = {runner.name: runner for runner in (NODE, GO, CARGO)}
"""Name -> runner. Pytest has no entry: its results are signed (`run_tests`)."""
_SYSTEM = "/usr/"  # sandboxes have it


@functools.cache
def toolchain_folder(name: str) -> str:
    """Returns the folder of a runner's toolchain on this machine; empty without one."""
    try:
        done = subprocess.run(REPORT_RUNNERS[name].toolchain, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def toolchain_env(name: str) -> dict[str, str]:
    """Returns the environment of commands that use a runner's toolchain; empty for pytest."""
    if name not in REPORT_RUNNERS:
        return {}
    folder = toolchain_folder(name)
    path = {"PATH": f"{PROGRAMS}:{_place_inside(name)}/bin:{folder}/bin:{DEFAULT_PATH}"} if folder else {}
    return {**REPORT_RUNNERS[name].env, **path}


def toolchain_options(backend: str, names: Iterable[str]) -> dict[str, Any]:
    """Returns options of a backend that show the toolchains of runners to sandboxes."""
    folders = {name: toolchain_folder(name) for name in sorted(names) if name in REPORT_RUNNERS}
    folders = {name: folder for name, folder in folders.items() if folder and not f"{folder}/".startswith(_SYSTEM)}
    if not folders:
        return {}
    # The path on this machine may be below a folder that sandboxes have themselves, such as /tmp.
    placed = [(folder, _place_inside(name)) for name, folder in folders.items()]
    options = {"namespaces": {"read_only": placed}, "landlock": {"read_only": [*folders.values()]}}
    return options if backend == "auto" else options.get(backend, {})


def _place_inside(name: str) -> str:
    return f"/opt/{name}"
