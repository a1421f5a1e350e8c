"""`verl-agentic preflight`: checks a config before Ray and GPUs are up; shows its first prompt, sizes and problems."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from verl_agentic.cli.findings import add_check_option, print_findings, printable

if TYPE_CHECKING:
    from verl_agentic.base.finding import Finding
    from verl_agentic.checks.preflight.derived import Number
    from verl_agentic.checks.preflight.planned_run import PlannedRun

_WORST_FIRST = ("fail", "not tested", "warn", "ok", "unknown")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument(
        "--config-dir", type=Path, metavar="DIR", help="read the config from this folder, as main_ppo does"
    )
    parser.add_argument(
        "--config-name", metavar="NAME", help="read the config of this name (default: verl's ppo_trainer)"
    )
    parser.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="override keys of the config, as for main_ppo"
    )
    parser.add_argument("--allow", action="append", default=[], metavar="KEY", help="accept this unknown key and all "
                        "keys below it, because your own code reads them; may be repeated")  # fmt: skip
    add_check_option(parser, gets="a PlannedRun", returns="a list of Findings")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Prints prompt, sizes and checks; returns 1 if a check fails."""
    from verl_agentic.checks.preflight.derived import derived_numbers
    from verl_agentic.checks.preflight.result import guarded, judge
    from verl_agentic.verl.extensions.preflight.plan_run import plan

    planned = plan(args.config_dir, args.config_name, args.overrides, allowed=args.allow)
    numbers, failures = ([], []) if planned.is_supervised else guarded("derived sizes", derived_numbers, planned)
    results = [*judge(planned, args.check), *failures]
    is_well = all(result.status != "fail" for result in results)
    if args.json:
        print(json.dumps(_make_report(planned, results, numbers, is_well), indent=2, ensure_ascii=False))
    else:
        _print_report(planned, results, numbers)
    return 0 if is_well else 1


def _make_report(
    planned: PlannedRun, results: list[Finding], numbers: list[Number], is_well: bool
) -> dict[str, object]:
    prompt = planned.prompt
    return {
        "ok": is_well,
        "checks": [{"check": r.check, "status": r.status, "found": r.found, "advice": r.advice} for r in results],
        "prompt": None
        if prompt is None
        else {
            "agent_loop": prompt.agent_loop,
            "text": prompt.text,
            "tokens": prompt.num_tokens,
            "tools": list(prompt.tools),
            "sampling": dict(prompt.sampling),
        },
        "numbers": [number.to_dict() for number in numbers],
    }


def _print_report(planned: PlannedRun, results: list[Finding], numbers: list[Number]) -> None:
    from rich.console import Console
    from rich.rule import Rule

    console = Console()
    if planned.prompt is not None:
        prompt = planned.prompt
        console.print(Rule(f"first row, as {prompt.agent_loop} shows it to the policy: {prompt.num_tokens} tokens"))
        # Text of rows is untrusted: no markup and no control characters for the terminal.
        console.print(printable(prompt.text), markup=False, highlight=False, soft_wrap=True)
        console.print(f"tools: {', '.join(prompt.tools) or 'none'}", markup=False, highlight=False)
        sampling = ", ".join(f"{key}={value}" for key, value in prompt.sampling.items())
        console.print(f"sampling: {printable(sampling)}", markup=False, highlight=False, soft_wrap=True)
    if numbers:
        console.print(Rule("derived sizes"))
        console.print(_make_numbers_table(numbers))
    console.print(Rule("checks"))
    titles = {result.check: result.check.replace("_", " ") for result in results}
    results = sorted(results, key=lambda result: _WORST_FIRST.index(result.status))
    print_findings(console, results, titles=titles)
    line, style = _summarise_counts(Counter(result.status for result in results))
    console.print(line, style=style)


def _summarise_counts(counts: Counter[str]) -> tuple[str, str]:
    """Returns the last line. It promises a start only if everything was tested."""
    failed, untested, warned = counts["fail"], counts["not tested"], counts["warn"]
    rest = f"; not tested: {untested}" * bool(untested) + f"; warnings: {warned}" * bool(warned)
    if failed:
        return f"{failed} of {counts.total()} findings must be fixed{rest}", "red"
    if untested:
        return f"no fault in what was tested{rest}", "yellow"
    return f"this run can start{rest}", "green"


def _make_numbers_table(numbers: list[Number]):
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table("", "", "made of", box=box.SIMPLE, show_header=False)
    for number in numbers:
        value = f"{number.value:,g} {number.unit}" if number.value < 1e6 else f"{number.value:,.0f} {number.unit}"
        table.add_row(number.name, Text(value, justify="right"), Text(number.how, style="dim"))
    return table
