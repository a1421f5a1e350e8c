"""Phases that this run, or another one in a folder beside it, has finished with the same inputs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from verl_agentic.cpu.quickstart.run_state import metric_files

_CHECKPOINTS = ("global_step_*", "latest_checkpointed_iteration.txt")


def record_file(run: Path, phase: str) -> Path:
    """Returns the file of a phase's record in the folder of a run."""
    return run / "phases" / f"{phase.replace(' ', '_')}.json"


def find_finished(runs: Iterable[Path], phase: str, fingerprint: str) -> tuple[Path | None, dict[str, Any]]:
    """Returns the first run that has finished a phase with these inputs, or None, and the record of the phase."""
    for run in runs:
        path = record_file(run, phase)
        record = json.loads(path.read_text()) if path.is_file() else {}
        if record.get("fingerprint") == fingerprint:
            return run, record
    return None, {}


def copy_phase(source: Path, target: Path, phase: str) -> None:
    """Replaces what a phase has left in the folder of a run by that of another one, without training's checkpoints."""
    for path in _list_products(target, phase):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in _list_products(source, phase):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, copy, ignore=shutil.ignore_patterns(*_CHECKPOINTS))
        else:
            shutil.copy2(path, copy)


def _list_products(run: Path, phase: str) -> list[Path]:
    kind, _, name = phase.partition(" ")
    if kind == "eval":
        paths = [run / "eval" / f"{name}_{how}" for how in ("sampled", "greedy")]
    elif kind == "data":
        paths = [run / "data" / name]
    else:
        paths = [run / kind, run / "logs" / f"{kind}.log", *metric_files(run, kind)]
    return [path for path in paths if path.exists()]
