"""`verl-agentic judge bias`: compares a judge's values of answers that are padded, or agree with the user."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING, Any

from verl_agentic.graders.cli.judge.panel_options import add_panel_options, panel_of

if TYPE_CHECKING:
    from verl_agentic.graders.judge.biases import BiasResult
    from verl_agentic.graders.judge.options import JudgeOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_panel_options(parser)
    parser.add_argument("--max-change", type=float, default=0.1, metavar="X", help="accept a mean change of the value "
                        "up to X, of 1 (default %(default)s)")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Measures the biases and prints them; returns 1 if one is larger than `--max-change` or unknown."""
    import json

    from verl_agentic.graders.judge.biases import is_fair, summarise_biases

    results = asyncio.run(_measure_biases(panel_of(args), repeats=args.repeats, is_quiet=args.json))
    summary = summarise_biases(results)
    fair = is_fair(summary, max_change=args.max_change)
    if args.json:
        cost = sum(result.cost for result in results)
        print(json.dumps({"models": args.model, "fair": fair, "biases": summary, "cost": cost}))
    else:
        _print_biases(args, summary, fair)
    return 0 if fair else 1


async def _measure_biases(options: JudgeOptions, *, repeats: int, is_quiet: bool) -> list[BiasResult]:
    from rich.console import Console
    from rich.progress import Progress

    from verl_agentic.graders.judge.biases import load_pairs, measure_biases

    with Progress(console=Console(stderr=True), disable=is_quiet) as progress:
        task = progress.add_task("", total=len(load_pairs()) * repeats)
        return await measure_biases(options, repeats=repeats, on_result=lambda _: progress.update(task, advance=1))


def _print_biases(args: argparse.Namespace, summary: dict[str, dict[str, Any]], fair: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    table = Table(title=f"biases of {', '.join(args.model)}", title_justify="left")
    for name in ("bias", "change of the value", "s.e.", "pairs", "abstained", "changed"):
        table.add_column(name)
    for kind, bias in summary.items():
        change, stderr = (("unknown" if bias[key] is None else f"{bias[key]:+.3f}") for key in ("change", "stderr"))
        table.add_row(kind, change, stderr.lstrip("+"), str(bias["pairs"]), str(bias["abstained"]),
                      ", ".join(bias["changed"]))  # fmt: skip
    console.print(table)
    verdict = "no bias" if fair else "biased, or unknown"
    console.print(Text(f"{verdict} (limit {args.max_change:g})", style="green" if fair else "red"))
