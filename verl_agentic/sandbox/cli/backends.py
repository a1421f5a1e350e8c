"""`verl-agentic sandbox backends`: tests each backend of this machine; shows its speed or its fault."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict

from verl_agentic.sandbox.elsewhere.providers import states
from verl_agentic.sandbox.pools.backends import BackendProbe, probe_all


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Prints a line per backend; the exit code is 0 if one of them isolates."""
    probes = asyncio.run(probe_all())
    usable = [probe for probe in probes if probe.works and probe.name != "local"]
    if args.json:
        auto = usable[0].name if usable else None
        print(
            json.dumps(
                {
                    "auto": auto,
                    "backends": [{**asdict(probe), "works": probe.works, "lacks": probe.lacks} for probe in probes],
                    "elsewhere": states(),
                }
            )
        )
    else:
        _show_probes(probes)
    return 0 if usable else 1


def _show_probes(probes: Sequence[BackendProbe]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("backend", "", "isolates by", "first result", "next result", "cannot do", box=box.SIMPLE_HEAD)
    for probe in probes:
        times = [f"{probe.start_ms:.0f} ms", f"{probe.run_ms:.1f} ms"] if probe.works else ["", ""]
        table.add_row(probe.name, "[green]ok[/]" if probe.works else "[red]no[/]", probe.isolation, *times, probe.lacks)
    console = Console()
    console.print(table)
    for probe in probes:
        if not probe.works:
            console.print(Text(f"{probe.name}: {probe.refusal}"))
    for name, state in states().items():
        console.print(Text(f"{name}: {state}"))
