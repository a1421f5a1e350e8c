"""`verl-agentic swe export`: writes files for swebench."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from verl_agentic.cli.options.option_values import whole

if TYPE_CHECKING:
    from verl_agentic.swe.grading.repo_task import RepoTask


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("tasks", type=Path, help="export the tasks of this file")
    parser.add_argument(
        "--predictions", type=Path, metavar="FILE", help="write predictions here; the reference solutions by default"
    )
    parser.add_argument(
        "--patches", type=Path, metavar="FILE", help="take patches from this JSON object: instance id -> diff"
    )
    parser.add_argument("--evaluation", type=Path, metavar="DIR", help="take the patches of the episodes of this "
                        "evaluation (verl-agentic evaluate --env swe or swe_edit)")  # fmt: skip
    parser.add_argument(
        "--sample", type=whole(0), default=0, metavar="K", help="take attempt K of --evaluation (default %(default)s)"
    )
    parser.add_argument(
        "--selected", action="store_true", help="take the attempts of --evaluation that evaluate --select has chosen"
    )
    parser.add_argument("--model", default="gold", help="name this model in predictions (default %(default)s)")
    parser.add_argument("--task-repo", type=Path, metavar="DIR", help="write a task repository here")


def run(args: argparse.Namespace) -> int:
    """Writes the files and prints the next command."""
    from verl_agentic.base.errors import ConfigError
    from verl_agentic.swe.exchange.export_tasks import export_predictions, export_task_repository
    from verl_agentic.swe.grading.repo_task import TaskStore

    if args.predictions is None and args.task_repo is None:
        raise ConfigError("nothing to export, got neither --predictions nor --task-repo; give one or both")
    store = TaskStore(args.tasks)
    tasks = list(store.tasks())
    if args.task_repo is not None:
        count = export_task_repository(tasks, store, args.task_repo)
        print(f"{args.task_repo}: {count} tasks\nnow run: swebench images build {args.task_repo}")
    if args.predictions is not None:
        patches = _choose_patches(args, tasks)
        count = export_predictions(patches, args.predictions, model=args.model)
        print(f"{args.predictions}: {count} predictions\nnow run: swebench eval {args.tasks} -p {args.predictions}")
    return 0


def _choose_patches(args: argparse.Namespace, tasks: Sequence[RepoTask]) -> Mapping[str, str | None]:
    from verl_agentic.base.errors import ConfigError
    from verl_agentic.swe.exchange.predictions import evaluation_patches, read_patches

    if args.patches is not None and args.evaluation is not None:
        raise ConfigError("patches have one source, got --patches and --evaluation; drop one")
    if args.evaluation is not None:
        sample = None if args.selected else args.sample
        return evaluation_patches(args.evaluation, [task.instance_id for task in tasks], sample=sample)
    return read_patches(args.patches) if args.patches else {task.instance_id: task.patch for task in tasks}
