"""The table of findings that commands print."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from verl_agentic.base.finding import Finding

if TYPE_CHECKING:
    from rich.console import Console

_MARKS = {
    "ok": "[green]ok[/]",
    "warn": "[yellow]warn[/]",
    "fail": "[red]FAIL[/]",
    "unknown": "[dim]unknown[/]",
    "not tested": "[magenta]not tested[/]",
}


def add_check_option(parser: argparse.ArgumentParser, *, gets: str, returns: str) -> None:
    """Adds `--check ADDRESS`, which runs checks of the user behind the bundled ones."""
    parser.add_argument("--check", action="append", default=[], metavar="ADDRESS", help="run your own check, too: "
                        f"module:function or path.py:function, which takes {gets} and returns {returns}; may be "
                        "repeated")  # fmt: skip


def print_findings(
    console: Console, findings: Iterable[Finding], *, titles: Mapping[str, str] | None = None, checks: str = "check"
) -> None:
    """Prints a row per finding: check, status, finding, advice and place to look.

    Args:
        console: output of the table.
        findings: in the order of the rows.
        titles: check -> title; other checks are shown by name.
        checks: head of the first column.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(checks, "", "finding and advice", box=box.SIMPLE_HEAD)
    for finding in findings:
        # Text, because the text of a model or an exception may contain markup of rich.
        cell = Text(printable(finding.found), overflow="fold")
        if finding.advice:
            cell.append(f"\ntry: {printable(finding.advice)}", style="cyan")
        if finding.look_at:
            cell.append(printable("".join(f"\nsee: {place}" for place in finding.look_at)), style="dim")
        table.add_row(Text((titles or {}).get(finding.check, finding.check)), _MARKS[finding.status], cell)
    console.print(table)


def print_tracebacks(texts: Iterable[str]) -> None:
    """Prints each different traceback once, to the error stream."""
    for text in dict.fromkeys(filter(None, texts)):
        print(f"\n{printable(text.rstrip())}", file=sys.stderr)


def printable(text: str) -> str:
    """Returns text without characters that control a terminal or change the text direction."""
    return "".join(char if char in "\n\t" or char.isprintable() else f"\\u{ord(char):04x}" for char in text)
