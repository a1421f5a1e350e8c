"""`verl-agentic judge probe`: send a judge wrong answers with attacks, and right ones."""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from verl_agentic.graders.cli.judge.panel_options import add_panel_options, panel_of

if TYPE_CHECKING:
    from verl_agentic.graders.judge.options import JudgeOptions
    from verl_agentic.graders.judge.probes import ProbeResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_panel_options(parser)


def run(args: argparse.Namespace) -> int:
    """Probes the judge and prints the results; returns 1 if it is not safe to train with."""
    import json

    results = asyncio.run(_run_probes(panel_of(args), repeats=args.repeats, is_quiet=args.json))
    report = summarise(results)
    if args.json:
        print(json.dumps({"endpoint": args.endpoint, "models": args.model, **report}, ensure_ascii=False))
    else:
        _print_report(", ".join(args.model), results, report)
    return 0 if report["safe"] else 1


async def _run_probes(options: JudgeOptions, *, repeats: int, is_quiet: bool) -> list[ProbeResult]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from verl_agentic.graders.judge.probes import load_probes, run_probes

    probes = load_probes()
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=is_quiet) as progress:
        task = progress.add_task("", total=len(probes) * repeats)
        return await run_probes(
            options, probes=probes, repeats=repeats, on_result=lambda _: progress.update(task, advance=1)
        )


def summarise(results: Sequence[ProbeResult]) -> dict[str, Any]:
    """Returns the report; `safe` is True if no attack passed and every control got its verdict."""
    attacks = [result for result in results if result.probe.is_attack]
    controls = [result for result in results if not result.probe.is_attack]
    failures = Counter(result.failure for result in results if result.failure)
    return {
        "safe": all(result.is_good for result in results),
        "attacks": len(attacks),
        "got_through": [result.probe.name for result in attacks if not result.is_good],
        "abstained": sum(result.outcome == "abstained" for result in attacks),
        "controls": len(controls),
        "controls_failed": [result.probe.name for result in controls if not result.is_good],
        "cost": sum(result.cost for result in results),
        "failures": dict(failures.most_common(5)),
        "results": [
            {"name": r.probe.name, "kind": r.probe.kind, "outcome": r.outcome, "good": r.is_good} for r in results
        ],
    }


def _print_report(model: str, results: Sequence[ProbeResult], report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    table = Table(title=f"probes of {model}", title_justify="left")
    for name, justify in (("kind", "left"), ("probes", "right"), ("withstood", "right"), ("abstained", "right")):
        table.add_column(name, justify=justify)  # pyright: ignore[reportArgumentType]
    table.add_column("gave way to")
    for kind in dict.fromkeys(result.probe.kind for result in results):
        kind_results = [result for result in results if result.probe.kind == kind]
        gave_way = Counter(result.probe.name for result in kind_results if not result.is_good)
        good, abstained = sum(r.is_good for r in kind_results), sum(r.outcome == "abstained" for r in kind_results)
        failures = ", ".join(name if count == 1 else f"{name} ({count})" for name, count in gave_way.items())
        table.add_row(kind, str(len(kind_results)), str(good), str(abstained), Text(failures, style="red"))
    console.print(table)
    for failure, count in report["failures"].items():
        console.print(Text(f"{count} abstained: {failure}", style="dim"), soft_wrap=True)
    if report["got_through"]:
        console.print(
            Text(f"{len(report['got_through'])} of {report['attacks']} attacks got through", style="red"),
            soft_wrap=True,
        )
    if report["controls_failed"]:
        wrong = f"{len(report['controls_failed'])} of {report['controls']} controls got no or the wrong verdict"
        is_mute = all(result.failure for result in results)
        why = "no request got a verdict, check --endpoint and --model" if is_mute else "it cannot tell right from wrong"
        console.print(Text(f"{wrong}: {why}", style="red"), soft_wrap=True)
    if report["safe"]:
        console.print(
            Text(f"no attack got through, all {report['controls']} controls are right", style="green"), soft_wrap=True
        )
