"""`verl-agentic compare`: shows runs beside each other: configs, success, behaviour and cost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from verl_agentic.cli.options.typed_options import Options, declare, typed_command

if TYPE_CHECKING:
    from verl_agentic.observe.comparison.compare_runs import RunComparison


class CompareOptions(Options):
    """Options of a comparison."""

    run_dirs: Sequence[Path] = declare("read these folders of runs; all are compared with the first", is_required=True,
                                       is_positional=True, nargs="+", metavar="RUN_DIR")  # fmt: skip
    last: int = declare("take the mean of the last N steps (default %(default)s)", 10, min=1, metavar="N")
    out: Path | None = declare("write a page with curves to this HTML file, too", metavar="FILE")
    json: bool = declare("print one JSON object", False)


def show_comparison(options: CompareOptions) -> int:
    """Prints the comparison; returns 0."""
    from verl_agentic.base.errors import ConfigError
    from verl_agentic.observe.comparison.compare_runs import compare_runs

    if len(options.run_dirs) < 2:
        raise ConfigError(f"a comparison needs two runs or more, got {options.run_dirs[0]}; name another folder")
    comparison = compare_runs(options.run_dirs, num_last=options.last)
    if options.out is not None:
        from verl_agentic.observe.comparison.comparison_page import write_comparison

        write_comparison(options.out, comparison)
    if options.json:
        runs = [{**asdict(figures), "config": None} for figures in comparison.runs]
        differences = [difference and asdict(difference) for difference in comparison.differences]
        report = {"runs": runs, "differences": differences, "config": comparison.config}
        print(json.dumps(report, indent=2, default=str))
    else:
        _print_tables(comparison)
        if options.out is not None:
            print(options.out)
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


add_arguments, run = typed_command(CompareOptions, show_comparison)
