"""Output of a plan and a report."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from verl_agentic.checks.cli.dryrun.plan import DryrunPlan
from verl_agentic.checks.dryrun.dryrun_page import write_dryrun_page
from verl_agentic.checks.dryrun.step_report import Report
from verl_agentic.cli.findings import print_findings

_MESSAGE_CHARS = 2_000


def show_plan(console: Console, plan: DryrunPlan) -> None:
    """Prints the plan, and every changed value."""
    console.print(Text(f"model   {plan.model.description}"))
    console.print(Text(f"rows    {plan.rows}"))
    console.print(Text(f"policy  {plan.policy}"))
    console.print(f"changed for this run: {len(plan.translation.changes)} values; the rest is your config")
    for why, lines in _group_changes(plan).items():
        console.print(Text(f"  {why}", style="bold"))
        for line in lines:
            console.print(Text(f"    {line}", style="dim"), soft_wrap=True)
    console.print()


def show_report(console: Console, report: Report, *, log: str) -> None:
    """Prints the stages, their findings, and the verdict."""
    print_findings(console, [stage.finding for stage in report.stages], checks="stage")
    if report.shown:
        console.print(report.shown)
    if report.error is not None:
        error = report.error
        console.print(Text(f"{error.type}: {error.message[:_MESSAGE_CHARS]}", style="red"))
        console.print(Text(f"in the stage {error.stage!r}{f', {error.where}' if error.where else ''}; log: {log}"))
    unseen = [stage.title for stage in report.stages if stage.status == "warn"]
    if not report.is_right:
        console.print("[red]not every stage is right[/]")
    elif unseen:
        console.print(f"[yellow]nothing is wrong; not everything was shown:[/] {', '.join(unseen)}")
    else:
        console.print("[green]every stage is right[/]")


def write_page(path: Path, plan: DryrunPlan, report: Report, *, seconds: float, log: str) -> None:
    """Writes plan and report as an HTML page."""
    write_dryrun_page(
        path,
        report,
        seconds=seconds,
        model=plan.model.description,
        rows=plan.rows,
        policy=plan.policy,
        changes=_group_changes(plan),
        log=log,
    )


def as_json(plan: DryrunPlan, report: Report, *, seconds: float, out: str) -> dict[str, Any]:
    """Returns plan and report as one JSON object."""
    return {
        "ok": report.is_right,
        "seconds": seconds,
        "out": out,
        "model": plan.model.description,
        "rows": plan.rows,
        "policy": plan.policy,
        "changes": [asdict(change) for change in plan.translation.changes],
        "stages": [asdict(stage) for stage in report.stages],
        "proof": None if report.proof is None else asdict(report.proof),
        "error": None if report.error is None else asdict(report.error),
    }


def _group_changes(plan: DryrunPlan) -> dict[str, list[str]]:
    """Returns the changed values by reason."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for change in plan.translation.changes:
        by_reason[change.why].append(str(change))
    return by_reason
