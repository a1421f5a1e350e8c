"""`verl-agentic env validate`: checks that an environment is fit for training."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_agentic.base.finding import Finding, log_only_from
from verl_agentic.cli.findings import print_findings, print_tracebacks
from verl_agentic.cli.options.option_values import whole
from verl_agentic.evaluate.cli.env.codec_options import add_codec_options, make_chosen_codec

if TYPE_CHECKING:
    from verl_agentic.evaluate.env_validation.validate_env import Report, Validation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("env", help="check this environment: the name of a bundled one, a folder, or a module")
    parser.add_argument(
        "--rows", type=Path, metavar="FILE", help="use the rows of this file (default: the examples and new rows)"
    )
    parser.add_argument("--count", type=whole(0), default=8, metavar="N", help="make N new rows (default %(default)s)")
    add_codec_options(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(args: argparse.Namespace) -> int:
    """Prints the findings; returns 0 if all checks pass, else 1."""
    import asyncio
    import json

    from rich.console import Console

    from verl_agentic.cli.options.option_values import parse_key_values
    from verl_agentic.episode.env_package import load_env_package
    from verl_agentic.evaluate.env_validation.validate_env import rows_to_validate, validate
    from verl_agentic.log.files.rows import read_rows

    package = load_env_package(args.env)
    rows = rows_to_validate(package, count=args.count) if args.rows is None else read_rows(args.rows)
    config = parse_key_values(args.config, option="--config")
    package.configured(config)  # one error instead of one per episode
    tokenizer, codec = make_chosen_codec(args)
    console = Console()
    with log_only_from(logging.CRITICAL, logger="verl_agentic"), _show_progress() as (on_check, on_progress):
        validation = asyncio.run(
            validate(
                package,
                rows,
                codec=codec,
                tokenizer=tokenizer,
                config=config,
                on_check=on_check,
                on_progress=on_progress,
            )
        )
    if args.json:
        print(json.dumps({**validation.to_dict(), "protocol": args.protocol}))
    else:
        _print_validation(validation, console, title=f"{args.env}: {len(rows)} rows, protocol {args.protocol}")
    if args.traceback:
        print_tracebacks(trace for check in validation.checks for trace in check.evidence.get("tracebacks", ()))
    return 0 if validation.ok else 1


@contextlib.contextmanager
def _show_progress() -> Iterator[tuple[Callable[[Finding], None], Report]]:
    """Shows what runs on the error stream: in one line, or outside of a terminal in a line per check and block."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True)
    printed_places: set[str] = set()

    def print_check(check: Finding) -> None:
        if not console.is_terminal:
            print(f"{check.check}: {check.status}", file=sys.stderr)

    with console.status("rows") as status:

        def show(text: str, place: str) -> None:
            status.update(escape(text))
            if place and not console.is_terminal and place not in printed_places:
                printed_places.add(place)
                print(text, file=sys.stderr)

        yield print_check, show


def _print_validation(validation: Validation, console: Any, *, title: str) -> None:
    from rich.text import Text

    console.print(Text(title, style="italic"))
    print_findings(console, validation.checks)
    figures = validation.figures
    times = ", ".join(
        f"{kind} {1e3 * figures[f'{kind}_s_median']:.1f} ms (p95 {1e3 * figures[f'{kind}_s_p95']:.1f} ms)"
        for kind in ("start", "step", "close")
        if f"{kind}_s_median" in figures
    )
    if times:
        processes = f"{figures['child_processes']:.0f} child processes at most"
        console.print(Text(f"{times}; {processes}", style="dim"))
