"""`verl-agentic model merge`: merges models that were trained from one base into one model."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("base", type=Path, metavar="BASE", help="take config and tokenizer from this Hugging Face "
                        "folder")  # fmt: skip
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL", help="take these folders, trained from BASE")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="write the model to this folder")
    parser.add_argument("--method", choices=("ram", "mean"), default="ram", help="use this method: ram averages "
                        "the updates that several models share and keeps those of one model, mean averages all "
                        "updates (default %(default)s)")  # fmt: skip
    parser.add_argument("--threshold", type=float, default=1e-5, metavar="T", help="leave out updates up to this size, "
                        "with ram (default %(default)g)")  # fmt: skip
    parser.add_argument("--rescale", type=float, default=1.0, metavar="R", help="let updates of one model grow, with "
                        "ram: by up to the factor R, the more of its other updates are averaged; 1.2 in the code of "
                        "the paper (default %(default)g)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the report as JSON instead of a table")


def run(args: argparse.Namespace) -> int:
    """Writes the model and prints the shares of changed parameters; returns 0."""
    import dataclasses
    import json

    from rich.console import Console

    from verl_agentic.base.errors import ConfigError
    from verl_agentic.data.model_merge import merge_models

    if len(args.models) < 2 or args.threshold < 0 or args.rescale < 1:
        raise ConfigError(
            f"a merge takes two models, --threshold from 0 and --rescale from 1 on, got {len(args.models)} models, "
            f"{args.threshold} and {args.rescale}; change them"
        )
    if args.method == "mean" and args.rescale != 1:
        raise ConfigError(f"--rescale is for --method ram, got {args.rescale} with mean; unset it")
    with Console(stderr=True).status("merging", spinner="dots") as status:
        report = merge_models(
            args.base, args.models, args.out, method=args.method, threshold=args.threshold, rescale=args.rescale,
            on_tensor=lambda name: status.update(f"merging {name}"),
        )  # fmt: skip
    if args.json:
        print(json.dumps({"models": [str(model) for model in args.models], **dataclasses.asdict(report)}))
    else:
        _print_report(args, report)
    return 0


def _print_report(args: argparse.Namespace, report) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("model", title=f"{report.num_parameters:,} parameters", title_justify="left")
    for name in ("changed", "also by another", "scale of the rest"):
        table.add_column(name, justify="right")
    columns = zip(args.models, report.active, report.shared, report.scales, strict=True)
    for model, active, shared, scale in columns:
        table.add_row(str(model), f"{active:.2%}", f"{shared:.2%}", f"{scale:.3g}")
    Console().print(table)
    print(f"merged into {args.out}; test it: verl-agentic model probe {args.out} --env NAME")
