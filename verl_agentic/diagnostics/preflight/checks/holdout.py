"""Rows that are used for training and validation."""

from __future__ import annotations

from typing import Any

from verl_agentic.diagnostics.preflight.planned_run import PlannedRun
from verl_agentic.finding import Finding, ok, warn


def holdout(run: PlannedRun) -> list[Finding]:
    """Returns files, or rows, that are in both training and validation."""
    train, val = (_files(run.get(f"data.{name}_files")) for name in ("train", "val"))
    if not train or not val:
        return []
    if shared := sorted(train & val):
        return [
            warn(
                f"validation uses training rows: {', '.join(shared)}; it cannot tell learning from memorising",
                "set data.val_files to held-out rows (verl-agentic prepare writes both)",
            )
        ]
    if run.rows is not None and run.val_rows is not None and (copied := run.rows.tasks & run.val_rows.tasks):
        return [
            warn(
                f"{len(copied)} of {len(run.val_rows.tasks)} different validation rows are training rows, too; success "
                "on them cannot tell learning from memorising",
                "set data.val_files to held-out rows (verl-agentic prepare writes both)",
            )
        ]
    return [ok("validation has its own rows")]


def _files(written: Any) -> set[str]:
    if written is None:
        return set()
    return {str(file) for file in written} if isinstance(written, list | tuple) else {str(written)}
