"""`verl-agentic swe export`: writes files for swebench."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("tasks", type=Path, help="export the tasks of this file")
    parser.add_argument(
        "--predictions", type=Path, metavar="FILE", help="write predictions here; the reference solutions by default"
    )
    parser.add_argument(
        "--patches", type=Path, metavar="FILE", help="take patches from this JSON object: instance id -> diff"
    )
    parser.add_argument("--model", default="gold", help="name this model in predictions (default %(default)s)")
    parser.add_argument("--task-repo", type=Path, metavar="DIR", help="write a task repository here")


def run(args: argparse.Namespace) -> int:
    """Writes the files and prints the next command."""
    from verl_agentic.data.swe.exchange.export_tasks import export_predictions, export_task_repository
    from verl_agentic.errors import ConfigError
    from verl_agentic.rewards.repository.repo_task import TaskStore

    if args.predictions is None and args.task_repo is None:
        raise ConfigError("nothing to export, got neither --predictions nor --task-repo; give one or both")
    store = TaskStore(args.tasks)
    tasks = list(store.tasks())
    if args.task_repo is not None:
        count = export_task_repository(tasks, store, args.task_repo)
        print(f"{args.task_repo}: {count} tasks\nnow run: swebench images build {args.task_repo}")
    if args.predictions is not None:
        patches = {task.instance_id: task.patch for task in tasks} if args.patches is None else _patches(args.patches)
        count = export_predictions(patches, args.predictions, model=args.model)
        print(f"{args.predictions}: {count} predictions\nnow run: swebench eval {args.tasks} -p {args.predictions}")
    return 0


def _patches(path: Path) -> dict[str, str | None]:
    import json

    from verl_agentic.errors import DataError

    try:
        patches = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as cause:
        raise DataError(f"the patches cannot be read, got {path}: {cause}; write a JSON object") from cause
    if not isinstance(patches, dict) or not all(isinstance(one, str | None) for one in patches.values()):
        raise DataError(f"patches must be a JSON object of diffs by instance id, got {path}; fix the file")
    return patches
