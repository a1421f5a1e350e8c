"""`verl-agentic swe check`: checks that every reference solution passes and every base tree fails."""

from __future__ import annotations

import argparse
from pathlib import Path

from verl_agentic.cli.options.option_values import whole
from verl_agentic.cli.options.typed_options import add_options, read_options
from verl_agentic.evaluate.cli.cluster_options import ClusterOptions, work_of
from verl_agentic.swe.cli.progress import CommandTimer, add_run_options, progress, show_results


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("tasks", type=Path, help="check the tasks of this file")
    parser.add_argument(
        "--runs", type=whole(1), default=3, metavar="N", help="run each tree N times (default %(default)s)"
    )
    parser.add_argument("--id", action="append", default=[], metavar="ID", help="check this task only (repeatable)")
    add_run_options(parser)
    add_options(parser, ClusterOptions)


def run(args: argparse.Namespace) -> int:
    """Prints the tasks and their problems; returns 0 if every task holds, else 1."""
    import asyncio
    import functools

    from verl_agentic.base.errors import DataError
    from verl_agentic.swe.check_tasks import TaskCheck, check_tasks, task_checks
    from verl_agentic.swe.grading.repo_task import TaskStore

    jobs, watch = args.jobs, CommandTimer()
    tasks = [task for task in TaskStore(args.tasks).tasks() if not args.id or task.instance_id in args.id]
    if not tasks:
        raise DataError(f"nothing to check in {args.tasks}, got no task with --id {args.id}; check the file and --id")
    make_work = functools.partial(task_checks, args.tasks, runs=args.runs, jobs=jobs, backend=args.backend)

    async def check() -> list[TaskCheck]:
        async with work_of(read_options(ClusterOptions, args), make_work, concurrency=jobs) as check_one:
            with progress("check", is_quiet=args.json) as report:
                return await check_tasks(tasks, check_one, on_result=report)

    checks = asyncio.run(check())
    wrong = {task_check.instance_id: list(task_check.problems) for task_check in checks if not task_check.ok}
    summary = {"tasks": len(checks), "hold": len(checks) - len(wrong), "runs": args.runs}
    summary |= watch.times(sandbox_cpu_s=sum(task_check.cpu_s for task_check in checks)) | (
        {"problems": wrong} if args.json else {}
    )
    rows = [
        {"key": task_check.instance_id, "status": "holds" if task_check.ok else "\n".join(task_check.problems)}
        for task_check in checks
    ]
    show_results(rows, as_json=args.json, columns=(), summary=summary)
    return 1 if wrong else 0
