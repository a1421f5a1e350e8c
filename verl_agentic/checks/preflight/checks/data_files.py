"""Files of rows that verl's trainers always open."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, fail
from verl_agentic.checks.preflight.planned_run import PlannedRun

_KEYS = ("train_files", "val_files")


def data_files(run: PlannedRun) -> list[Finding]:
    """Returns keys without files. verl makes both datasets, also if it never validates (`trainer_base.py`)."""
    data = run.get("data", {})
    return [
        fail(
            f"data.{key} names no file, got {data[key]!r}; verl's trainer opens it at its start, also if it never "
            "validates",
            f"set data.{key} (verl-agentic prepare writes both files; data.val_max_samples limits the validation)",
        )
        for key in _KEYS
        if key in data and not data[key]
    ]
