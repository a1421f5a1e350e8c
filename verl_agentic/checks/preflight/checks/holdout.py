"""Rows that are used for training and validation."""

from __future__ import annotations

from typing import Any

from verl_agentic.base.finding import Finding, not_tested, ok, warn
from verl_agentic.checks.preflight.planned_run import PlannedRun


def holdout(run: PlannedRun) -> list[Finding]:
    """Returns files, or rows, that are in both training and validation."""
    train, val = (_collect_files(run.get(f"data.{name}_files")) for name in ("train", "val"))
    if not train or not val:
        return []
    if shared := sorted(train & val):
        return [
            warn(
                f"validation uses training rows: {', '.join(shared)}; it cannot tell learning from memorising",
                "set data.val_files to held-out rows (verl-agentic prepare writes both)",
            )
        ]
    shared = run.shared_rows
    if shared is None:
        return [
            not_tested("training and validation rows were not compared: their prompts are not in the column prompt")
        ]
    if shared.exact + shared.near:
        return [
            warn(
                f"{shared.exact + shared.near} of {shared.compared} training rows are validation rows, too "
                f"({shared.exact} exact, {shared.near} near copies, such as {shared.example}); success on them cannot "
                "tell learning from memorising",
                "leave them out: verl-agentic data check TRAIN --against VAL --drop OUT",
            )
        ]
    if run.rows is not None and shared.compared < run.rows.count:
        return [
            ok(
                f"none of the first {shared.compared} training rows is a validation row; compare all with verl-agentic "
                "data check TRAIN --against VAL"
            )
        ]
    return [ok("validation has its own rows")]


def _collect_files(setting: Any) -> set[str]:
    if setting is None:
        return set()
    return {str(file) for file in setting} if isinstance(setting, list | tuple) else {str(setting)}
