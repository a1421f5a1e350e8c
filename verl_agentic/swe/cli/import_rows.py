"""`verl-agentic swe import`: converts rows of other datasets to tasks."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("file", type=Path, help="read the rows of this .jsonl, .json or .parquet file")
    parser.add_argument(
        "--format",
        metavar="NAME",
        help="read swe-bench, swe-rebench, swe-bench-old, swe-gym, swe-smith, r2e-gym, nemo-gym or nemotron",
    )
    parser.add_argument(
        "--pytest-only", action="store_true", help="leave out tasks whose tests pytest cannot run, instead of an error"
    )
    parser.add_argument("--out", type=Path, default=Path("tasks.jsonl"), help="write tasks here (default %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Writes the tasks and prints how many; returns 1 if none is left."""
    from collections import Counter

    from verl_agentic.base.errors import ConfigError
    from verl_agentic.swe.exchange.import_rows import import_tasks
    from verl_agentic.swe.grading.repo_task import TaskStore

    if args.out.suffix != ".jsonl" or args.out.resolve() == args.file.resolve():
        raise ConfigError(f"--out must be another .jsonl file, got {args.out}; choose a name that ends in .jsonl")
    tasks, num_left_out = import_tasks(args.file, form=args.format, pytest_only=args.pytest_only)
    TaskStore(args.out).write(tasks)
    images = sum(bool(task.image) for task in tasks)
    scripts = sum(bool(task.eval_script) for task in tasks)
    print(f"{args.out}: {len(tasks)} tasks, {images} with an image, {scripts} with an evaluation script")
    for flag, count in Counter(flag for task in tasks for flag in task.flags).items():
        print(f"{count} tasks are flagged {flag}")
    if num_left_out:
        print(f"{num_left_out} rows are left out: pytest cannot run their tests")
    return 0 if tasks else 1
