"""`verl-agentic diagnose`: names the faults of a finished or running run, with advice."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_agentic.cli.findings import add_check_option, print_findings, printable
from verl_agentic.cli.options.option_values import whole

if TYPE_CHECKING:
    from verl_agentic.base.finding import Finding
    from verl_agentic.observe.diagnosis.evidence import RunEvidence


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument(
        "run_dir", type=Path, metavar="RUN_DIR", help="read this folder of a run; its log may lie deeper"
    )
    parser.add_argument(
        "--prompts", type=whole(0), default=0, metavar="N", help="list the N prompts that fail most, too"
    )
    add_check_option(parser, gets="a RunEvidence", returns="a Finding")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Prints a finding per line; returns 0 if nothing failed, 1 if something did, 2 with nothing to diagnose."""
    from verl_agentic.base.errors import DataError
    from verl_agentic.log.run_files import require_one_run
    from verl_agentic.observe.checklist import diagnose, exit_code, title
    from verl_agentic.observe.diagnosis.evidence import RunEvidence

    require_one_run(args.run_dir)
    evidence = RunEvidence(args.run_dir)
    if not args.run_dir.is_dir() or evidence.is_empty:
        raise DataError(
            f"there is nothing to diagnose: no trajectories, metrics, errors or *.log below {args.run_dir}; a run "
            "writes them to agentic.log.dir"
        )
    findings = diagnose(evidence, args.check)
    titles = {name: title(name) for name in findings}
    code, prompts = exit_code(findings), _list_prompts(evidence, args.prompts)
    if args.json:
        lines = [{"check": name, "title": titles[name], **asdict(finding)} for name, finding in findings.items()]
        report = {"ok": code == 0, "run_dir": str(args.run_dir), "last_step": evidence.last_step, "verdicts": lines}
        print(json.dumps({**report, "prompts": prompts} if args.prompts else report, indent=2, default=str))
    else:
        _print_diagnosis(findings, titles, prompts)
    return code


def _list_prompts(evidence: RunEvidence, count: int) -> list[dict[str, Any]]:
    """Returns the running success rate of prompts, the hardest first."""
    from verl_agentic.observe.diagnosis.record_metrics import pass_rates

    if not count:
        return []
    *_, (_, rates, names) = [(0, None, []), *pass_rates(evidence)]
    return [{**row, "prompt": names[int(row["prompt"])]} for row in rates.rows()[:count]] if rates else []


def _print_diagnosis(findings: Mapping[str, Finding], titles: Mapping[str, str], prompts: list[dict[str, Any]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    numbered = {name: f"{number:2} {titles[name]}" for number, name in enumerate(findings, start=1)}
    print_findings(console, findings.values(), titles=numbered)
    if prompts:
        rates = Table("prompt", "success", "groups", "streak", box=box.SIMPLE_HEAD)
        for row in prompts:
            cells = f"{row['rate']:.2f}", str(row["groups"]), str(row["streak"])
            rates.add_row(Text(printable(str(row["prompt"]))), *cells)
        console.print(rates)
    failed = [titles[name] for name, finding in findings.items() if finding.status == "fail"]
    verdict = f"[red]{len(failed)} failed, begin with: {failed[0]}[/]" if failed else "[green]nothing failed[/]"
    console.print(verdict)
