"""`verl-agentic reward front`: compares runs by several reward parts and shows which runs no other run beats."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from verl_agentic.cli.reward.trajectories import add_trajectory_arguments, chosen_groups


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_trajectory_arguments(parser, limit=100_000)
    parser.add_argument(
        "--against", type=Path, nargs="+", required=True, metavar="RUN_DIR", help="compare with these runs"
    )
    parser.add_argument("--parts", required=True, metavar="A,B,-C", help="compare these numbers of the stored "
                        "scores, such as acc,holdout,-cost. More is better; with a minus sign, less is better. Write "
                        "--parts=-cost,acc if the first has a minus sign")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(args: argparse.Namespace) -> int:
    """Prints the mean parts of every run and the Pareto front; returns 0."""
    from rich.console import Console
    from rich.table import Table

    from verl_agentic.rewards.groups.pareto import pareto_front

    parts = [part.strip() for part in args.parts.split(",") if part.strip()]
    means = {}
    for folder in (args.run_dir, *args.against):
        args.run_dir = folder
        means[str(folder)] = [_mean(args, part.lstrip("-")) for part in parts]
    signs = [-1.0 if part.startswith("-") else 1.0 for part in parts]
    points = {run: [sign * x for sign, x in zip(signs, point, strict=True)] for run, point in means.items()}
    front = pareto_front(points)
    if args.json:
        named = {run: dict(zip(parts, point, strict=True)) for run, point in means.items()}
        print(json.dumps({"means": named, "front": front}))
        return 0
    table = Table(title="means per run", title_justify="left")
    for name in ("run", *parts, "on the front"):
        table.add_column(name, overflow="fold")
    for name, point in means.items():
        table.add_row(name, *(f"{value:.4g}" for value in point), "yes" if name in front else "")
    Console().print(table)
    return 0


def _mean(args: argparse.Namespace, part: str) -> float:
    """Returns the mean of a part over the samples that have a score.

    Raises:
        DataError: a score lacks the part, or no score is stored.
    """
    from verl_agentic.errors import DataError

    scores = [stored.score for group in chosen_groups(args).groups for stored in group if stored.score is not None]
    keys = (part, f"reward/{part}")
    values = [score[key] for score in scores for key in keys[:1] if key in score]
    values = values or [score[key] for score in scores for key in keys[1:] if key in score]
    if not values or len(values) < len(scores):
        known = sorted({name for score in scores for name in score})
        raise DataError(f"{args.run_dir} has no part {part!r} in every score, got {known}; name one of them")
    return sum(values) / len(values)
