"""Number and form of the rows."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, fail, not_tested, ok, warn
from verl_agentic.checks.preflight.planned_run import PlannedRun


def rows(run: PlannedRun) -> list[Finding]:
    """Returns faults of the data as a whole, and of its first row."""
    findings = [fail(message, "`verl-agentic prepare ENV --check FILE` shows all faults of rows")
             for message in run.problems.get("rows", ())]  # fmt: skip
    if run.rows is None:
        return findings or [not_tested("the training rows were not read", "see the line files")]
    findings += _check_random_draw(run)
    size, count = run.number("data.train_batch_size", 1), run.num_train_rows
    if count < size:
        findings.append(
            fail(
                f"{count} training rows are fewer than data.train_batch_size={size}: an epoch has no step",
                "make more rows, or lower data.train_batch_size",
            )
        )
    if run.val_rows is not None and run.val_rows.count == 0:
        findings.append(fail("the validation files have no rows", "make some, or name other files"))
    return findings or [ok(f"{run.rows.count} training rows, {run.val_rows.count if run.val_rows else 0} to validate")]


def _check_random_draw(run: PlannedRun) -> list[Finding]:
    """Returns splits of which verl draws other rows at each start."""
    drawn = [split for split in ("train", "val") if run.number(f"data.{split}_max_samples", -1) > 0]
    if not drawn or not run.get("data.shuffle") or run.get("data.seed") is not None:
        return []
    names = " and ".join(f"data.{split}_max_samples" for split in drawn)
    return [
        warn(
            f"{names} without data.seed: verl draws other rows at each start, so a resumed run has other rows, and "
            "validation curves of two runs cannot be compared",
            "set data.seed=1",
        )
    ]
