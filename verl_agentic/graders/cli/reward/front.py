"""`verl-agentic reward front`: compares runs by several reward parts and shows which runs no other run beats."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from verl_agentic.evaluate.cli.front_table import front_of, print_front, signed_names
from verl_agentic.graders.cli.reward.trajectories import add_trajectory_arguments, chosen_groups


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
    parts, means = signed_names(args.parts), {}
    for folder in (args.run_dir, *args.against):
        args.run_dir = folder
        means[str(folder)] = [_compute_mean(args, part.lstrip("-")) for part in parts]
    front = front_of(parts, means)
    if args.json:
        named = {run: dict(zip(parts, point, strict=True)) for run, point in means.items()}
        print(json.dumps({"means": named, "front": front}))
        return 0
    cells = {run: [f"{value:.4g}" for value in point] for run, point in means.items()}
    print_front("means per run", "run", parts, cells, front)
    return 0


def _compute_mean(args: argparse.Namespace, part: str) -> float:
    """Returns the mean of a part over the samples that have a score.

    Raises:
        DataError: a score lacks the part, or no score is stored.
    """
    from verl_agentic.base.errors import DataError

    scores = [stored.score for group in chosen_groups(args).groups for stored in group if stored.score is not None]
    keys = (part, f"reward/{part}")
    values = [score[key] for score in scores for key in keys[:1] if key in score]
    values = values or [score[key] for score in scores for key in keys[1:] if key in score]
    if not values or len(values) < len(scores):
        names = sorted({name for score in scores for name in score})
        raise DataError(f"{args.run_dir} has no part {part!r} in every score, got {names}; name one of them")
    return sum(values) / len(values)
