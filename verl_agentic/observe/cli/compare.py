"""`verl-agentic compare`: shows runs beside each other: configs, success, behaviour and cost."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from verl_agentic.cli.options.numbers import whole

if TYPE_CHECKING:
    from verl_agentic.observe.comparison.compare_runs import RunComparison


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument(
        "run_dirs",
        type=Path,
        nargs="+",
        metavar="RUN_DIR",
        help="read these folders of runs; all are compared with the first",
    )
    parser.add_argument(
        "--last", type=whole(1), default=10, metavar="N", help="take the mean of the last N steps (default %(default)s)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write a page with curves to this HTML file, too")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Prints the comparison; returns 0."""
    from verl_agentic.base.errors import ConfigError
    from verl_agentic.observe.comparison.compare_runs import compare_runs

    if len(args.run_dirs) < 2:
        raise ConfigError(f"a comparison needs two runs or more, got {args.run_dirs[0]}; name another folder")
    comparison = compare_runs(args.run_dirs, num_last=args.last)
    if args.out is not None:
        from verl_agentic.observe.comparison.comparison_page import write_comparison

        write_comparison(args.out, comparison)
    if args.json:
        runs = [{**asdict(figures), "config": None} for figures in comparison.runs]
        differences = [difference and asdict(difference) for difference in comparison.differences]
        report = {"runs": runs, "differences": differences, "config": comparison.config}
        print(json.dumps(report, indent=2, default=str))
    else:
        _print_tables(comparison)
        if args.out is not None:
            print(args.out)
    return 0


def _print_tables(comparison: RunComparison) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    from verl_agentic.cli.findings import printable
    from verl_agentic.observe.comparison.comparison_tables import config_lines, figure_lines

    console = Console()
    names = [printable(figures.name) for figures in comparison.runs]
    for title, lines in (("different keys", config_lines(comparison)), ("", figure_lines(comparison))):
        columns = [Column(name, ratio=1) for name in [title, *names]]
        table = Table(*columns, box=box.SIMPLE_HEAD, expand=True)
        for label, cells in lines:
            table.add_row(*(Text(printable(cell), overflow="fold") for cell in [label, *cells]))
        console.print(table if lines else "[dim]no key of the configs differs[/]")
