"""`verl-agentic reward lab`: scores stored trajectories with another rubric and compares the scores."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_agentic.graders.cli.reward.trajectories import add_trajectory_arguments, chosen_groups

if TYPE_CHECKING:
    from verl_agentic.graders.reward_audit.compare_rubrics import GroupComparison, Lab
    from verl_agentic.graders.stored_samples import StoredSample
    from verl_agentic.rewards.rubric import Rubric

_SHOWN_GROUPS = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_trajectory_arguments(parser, limit=4096)
    parser.add_argument(
        "--rubric", type=Path, required=True, metavar="FILE", help="read the other rubric from this YAML file"
    )
    parser.add_argument(
        "--old", type=Path, metavar="FILE", help="compare with this rubric (default: the stored scores)"
    )
    parser.add_argument("--estimator", choices=("grpo", "dr_grpo", "rloo"), default="grpo", help="compute "
                        "advantages with this estimator (default %(default)s)")  # fmt: skip
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with plots that works offline")
    parser.add_argument("--json", action="store_true", help="print everything as JSON instead of a table")


def run(args: argparse.Namespace) -> int:
    """Scores the trajectories and prints the changes; returns 1 if none can be scored."""
    import json

    from verl_agentic.rewards.rubric import Rubric

    new = Rubric.from_file(args.rubric)
    old = None if args.old is None else Rubric.from_file(args.old)
    chosen = chosen_groups(args)
    lab = asyncio.run(_compare_groups(args, chosen.groups, new, old))
    if args.html is not None:
        from verl_agentic.graders.reward_audit.compare_page import write_lab_page

        write_lab_page(args.html, lab, title=f"{args.rubric.name} on {args.run_dir}")
    if args.json:
        print(json.dumps({"run_dir": str(args.run_dir), "rubric": str(args.rubric), "trajectories": chosen.to_dict(),
                          **lab.to_dict()}))  # fmt: skip
    else:
        _print_lab(args, lab)
        print(chosen)
    return 0 if any(sample.new is not None for sample in lab.samples) else 1


async def _compare_groups(
    args: argparse.Namespace, groups: list[list[StoredSample]], new: Rubric, old: Rubric | None
) -> Lab:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress

    from verl_agentic.graders.reward_audit.compare_rubrics import compare

    columns = (BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), disable=args.json, transient=True) as progress:
        task = progress.add_task("", total=len(groups))
        return await compare(
            groups, new=new, old=old, estimator=args.estimator, on_group=lambda: progress.update(task, advance=1)
        )


def _print_lab(args: argparse.Namespace, lab: Lab) -> None:
    from rich.console import Console
    from rich.text import Text

    console, summary = Console(), lab.summary()
    console.print(_make_figures_table(args, summary))
    moved = sorted((group for group in lab.groups if _compute_max_change(group)), key=_compute_max_change, reverse=True)
    console.print(_make_groups_table(moved) if moved else "no advantage changes")
    correlation, inside = summary["rank_correlation"], summary["rank_correlation_in_groups"]
    console.print(
        f"rank correlation of old and new rewards {_format_number(correlation)}, inside groups {_format_number(inside)}"
    )
    console.print(f"{summary['changed_sign']} samples change the sign of their advantage ({lab.estimator})")
    for key, verb in (("only_new", "would be dropped and were not"), ("only_old", "were dropped and would not be")):
        if summary["dropped"][key]:
            console.print(f"{len(summary['dropped'][key])} groups {verb} by dynamic sampling")
    if args.html is not None:
        console.print(Text(f"page: {args.html}", style="dim"), soft_wrap=True)


def _make_figures_table(args: argparse.Namespace, summary: dict[str, Any]) -> Any:
    from rich.table import Table
    from rich.text import Text

    title = f"{args.rubric.name} on {summary['samples']} samples in {summary['groups']} groups of {args.run_dir}"
    table = Table(title=Text(title), title_justify="left")
    table.add_column("")
    table.add_column("stored" if args.old is None else args.old.name, justify="right")
    table.add_column(args.rubric.name, justify="right")
    for name, line in (("reward", "mean reward"), ("acc", "mean outcome"), ("dropped", "groups that dynamic sampling "
                       "drops"), ("void", "samples not scored")):  # fmt: skip
        table.add_row(line, _format_number(summary[name]["old"]), _format_number(summary[name]["new"]))
    return table


def _make_groups_table(groups: Sequence[GroupComparison]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(title="groups whose advantages change most", title_justify="left")
    table.add_column("group", overflow="fold")
    for name in ("n", "mean", "change", "rank", "dropped"):
        table.add_column(name, justify="right")
    for group in groups[:_SHOWN_GROUPS]:
        dropped = (("no", "yes")[group.is_dropped_old], ("no", "yes")[group.is_dropped_new])
        table.add_row(
            Text(group.name),
            str(len(group.samples)),
            f"{_format_number(group.old_mean)} → {_format_number(group.new_mean)}",
            f"{_compute_max_change(group):.3g}",
            _format_number(group.rank_correlation),
            dropped[0] if dropped[0] == dropped[1] else " → ".join(dropped),
        )
    return table


def _compute_max_change(group: GroupComparison) -> float:
    """Returns the largest change of an advantage."""
    return max(abs(sample.change) for sample in group.samples)


def _format_number(value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
