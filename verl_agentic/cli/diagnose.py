"""`verl-agentic diagnose`: names what is wrong with a finished or running run, and what to try next."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verl_agentic.diagnostics.diagnosis.evidence import RunEvidence
    from verl_agentic.diagnostics.diagnosis.verdict import Verdict

_MARKS = {"ok": "[green]ok[/]", "warn": "[yellow]warn[/]", "fail": "[red]FAIL[/]", "unknown": "[dim]unknown[/]"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument(
        "run_dir", type=Path, metavar="RUN_DIR", help="read this folder of a run, or a folder that contains it"
    )
    parser.add_argument("--prompts", type=int, default=0, metavar="N", help="list the N prompts that fail most, too")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Prints a verdict per line; returns 0 when nothing failed, 1 when something did, 2 with nothing to diagnose."""
    from verl_agentic.diagnostics.diagnosis.checklist import CHECKS, diagnose, exit_code
    from verl_agentic.diagnostics.diagnosis.evidence import RunEvidence
    from verl_agentic.errors import DataError

    evidence = RunEvidence(args.run_dir)
    if not args.run_dir.is_dir() or evidence.is_empty:
        raise DataError(
            f"there is nothing to diagnose: no trajectories, metrics, errors or *.log below {args.run_dir}; a run "
            "writes them to actor_rollout_ref.rollout.custom.agentic.log.dir"
        )
    verdicts = diagnose(evidence)
    code, prompts = exit_code(verdicts), _prompts(evidence, args.prompts)
    if args.json:
        lines = [{"check": name, "title": CHECKS[name], **verdict.to_dict()} for name, verdict in verdicts.items()]
        report = {"ok": code == 0, "run_dir": str(args.run_dir), "last_step": evidence.last_step, "verdicts": lines}
        print(json.dumps({**report, "prompts": prompts} if args.prompts else report, indent=2, default=str))
    else:
        _show(verdicts, CHECKS, prompts)
    return code


def _prompts(evidence: RunEvidence, count: int) -> list[dict[str, Any]]:
    """Returns the running success rate of prompts, the hardest first."""
    from verl_agentic.diagnostics.diagnosis.checks.prompt_variance import pass_rates

    if not count:
        return []
    rates, names = pass_rates(evidence)
    return [{**row, "prompt": names[int(row["prompt"])]} for row in rates.rows()[:count]] if rates is not None else []


def _show(verdicts: Mapping[str, Verdict], titles: Mapping[str, str], prompts: list[dict[str, Any]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Text, because what a model or an exception wrote may hold what rich takes for markup.
    console = Console()
    table = Table("", "check", "", "found, and what to try", box=box.SIMPLE_HEAD)
    for number, (name, verdict) in enumerate(verdicts.items(), start=1):
        said = Text(_printable(verdict.found), overflow="fold")
        if verdict.advice:
            said.append(f"\ntry: {_printable(verdict.advice)}", style="cyan")
        if verdict.look_at:
            said.append(f"\nsee: {_printable(', '.join(verdict.look_at))}", style="dim")
        table.add_row(str(number), titles[name], _MARKS[verdict.status], said)
    console.print(table)
    if prompts:
        rates = Table("prompt", "success", "groups", "streak", box=box.SIMPLE_HEAD)
        for row in prompts:
            rates.add_row(
                Text(_printable(str(row["prompt"]))), f"{row['rate']:.2f}", str(row["groups"]), str(row["streak"])
            )
        console.print(rates)
    failed = [titles[name] for name, verdict in verdicts.items() if verdict.status == "fail"]
    told = f"[red]{len(failed)} failed, begin with: {failed[0]}[/]" if failed else "[green]nothing failed[/]"
    console.print(told)


def _printable(text: str) -> str:
    """Returns text without characters that would steer a terminal."""
    return "".join(char if char.isprintable() or char == "\n" else f"\\x{ord(char):02x}" for char in text)
