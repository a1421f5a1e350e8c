"""Options and progress that the subcommands share."""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_agentic.cli.options.option_values import whole

if TYPE_CHECKING:
    from verl_agentic.swe.releases.mine_packages import MineOptions

Report = Callable[[Mapping[str, Any], int], None]


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of commands that run tests."""
    parser.add_argument(
        "--jobs",
        type=whole(1),
        default=os.cpu_count() or 1,
        metavar="N",
        help="run N suites at a time (default: the cores)",
    )
    parser.add_argument(
        "--backend",
        default="auto",
        metavar="NAME",
        help="run tests and pip in this sandbox backend (default %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON line instead of a table")


def add_out(parser: argparse.ArgumentParser) -> None:
    """Adds `--out`."""
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("swe_tasks/tasks.jsonl"),
        metavar="FILE",
        help="add tasks to this file; trees and a journal are written beside it (default %(default)s)",
    )


def add_index_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of commands that download releases."""
    parser.add_argument("--index-url", metavar="URL", help="use this package index instead of pip's default")
    parser.add_argument("--find-links", type=Path, metavar="DIR", help="use source distributions of this folder only")
    parser.add_argument(
        "--site", type=Path, metavar="DIR", help="use a copy of this folder of installed packages instead of pip"
    )
    parser.add_argument(
        "--requires", action="append", default=[], metavar="SPEC", help="add this requirement of the tests (repeatable)"
    )


def mine_options(args: argparse.Namespace, *, packages: Sequence[str], releases: int = 1) -> MineOptions:
    """Returns the options of `add_index_options`."""
    from verl_agentic.swe.releases.mine_packages import MineOptions
    from verl_agentic.swe.releases.pip import PipIndex

    return MineOptions(
        packages=packages,
        releases=releases,
        requires=args.requires,
        index=PipIndex(index_url=args.index_url, find_links=args.find_links),
        site=args.site,
        backend=args.backend,
    )


@contextmanager
def progress(name: str, *, is_quiet: bool) -> Iterator[Report]:
    """Shows a bar on stderr; yields a function that takes a result and the number of results to come in all."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=is_quiet) as bar:
        task = bar.add_task(name, total=None)

        def report(result: Mapping[str, Any], total: int) -> None:
            bar.update(task, advance=1, total=total, description=f"{name}: {result['key'][:60]}: {result['status']}")

        yield report


class CommandTimer:
    """Wall and CPU time of a command with its child processes."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.monotonic(), _cpu_s()

    def times(self, *, sandbox_cpu_s: float) -> dict[str, float]:
        """Returns seconds: wall time, CPU time of this process with its children, and CPU time that tests report.

        The children include the sandboxes of this machine, except those of Docker.
        """
        return {
            "wall_s": round(time.monotonic() - self._wall, 1),
            "test_cpu_s": round(sandbox_cpu_s, 1),
            "cpu_s": round(_cpu_s() - self._cpu, 1),
        }


def show_results(
    results: Sequence[Mapping[str, Any]], *, as_json: bool, columns: Sequence[str], summary: Mapping[str, Any]
) -> None:
    """Prints a table of results with their statuses, and the summary; or the summary as one JSON line."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if as_json:
        print(json.dumps(summary))
        return
    table = Table("work", "result", *columns)
    for result in results:
        cells = (result.get(column, "") for column in columns)
        texts = (", ".join(map(str, cell)) if isinstance(cell, list | tuple) else str(cell) for cell in cells)
        table.add_row(Text(result["key"]), Text(result["status"]), *map(Text, texts))
    console = Console()
    console.print(table)
    console.print(", ".join(f"{key} {value}" for key, value in summary.items()))


def _cpu_s() -> float:
    usages = (resource.getrusage(scope) for scope in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
