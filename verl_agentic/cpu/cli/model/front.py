"""`verl-agentic model front`: compares evaluated models by several figures and shows which no other model beats."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from verl_agentic.evaluate.cli.front_table import front_of, print_front, signed_names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="read the summary of this folder of "
                        "verl-agentic evaluate or model probe")  # fmt: skip
    parser.add_argument("--by", default="success,-model_tokens", metavar="A,-B", help="compare these figures; more is "
                        "better, with a minus sign less is, such as -num_turns or -cost.per_episode. Write --by=-A,B "
                        "if the first has a minus sign (default %(default)s)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(args: argparse.Namespace) -> int:
    """Prints the figures of every folder and the Pareto front; returns 0."""
    import json

    names = signed_names(args.by)
    figures_by_folder = {
        str(folder): [_read_figure(folder, name.lstrip("-")) for name in names] for folder in args.folders
    }
    front = front_of(
        names, {folder: [figure["mean"] for figure in figures] for folder, figures in figures_by_folder.items()}
    )
    if args.json:
        figures = {folder: dict(zip(names, values, strict=True)) for folder, values in figures_by_folder.items()}
        print(json.dumps({"figures": figures, "front": front}))
        return 0
    cells = {folder: [_format_figure(figure) for figure in figures] for folder, figures in figures_by_folder.items()}
    print_front("evaluated models", "evaluation", names, cells, front)
    return 0


def _read_figure(folder: Path, name: str) -> dict[str, Any]:
    """Returns a figure of a summary as a mapping with `mean`.

    Raises:
        DataError: the folder has no summary, or the summary has no such number.
    """
    import json

    from verl_agentic.base.errors import DataError

    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as cause:
        raise DataError(f"{folder} has no summary of an evaluation, got {cause}; name a folder of evaluate") from cause
    value = summary
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, dict) and isinstance(value.get("mean"), int | float):
        return value
    if not isinstance(value, int | float):
        raise DataError(
            f"{folder} has no figure {name!r}, got one of {sorted(summary)}; name a number, such as success"
        )
    return {"mean": value}


def _format_figure(figure: dict[str, Any]) -> str:
    if "ci95" in figure:
        return "{:.3f} ({:.3f} to {:.3f})".format(figure["mean"], *figure["ci95"])
    stderr = figure.get("stderr")
    return f"{figure['mean']:.4g}" + ("" if stderr is None else f" ± {stderr:.2g}")
