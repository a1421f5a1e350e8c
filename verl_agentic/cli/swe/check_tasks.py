"""`verl-agentic swe check`: checks that every reference solution passes and every base tree fails."""

from __future__ import annotations

import argparse
from pathlib import Path

from verl_agentic.cli.swe.progress import CommandTimer, add_run_options, jobs_of, progress, show_results


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("tasks", type=Path, help="check the tasks of this file")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="run each tree N times (default %(default)s)")
    parser.add_argument("--id", action="append", default=[], metavar="ID", help="check this task only (repeatable)")
    add_run_options(parser)


def run(args: argparse.Namespace) -> int:
    """Prints the tasks and their problems; returns 0 if every task holds, else 1."""
    import asyncio

    from verl_agentic.data.swe.check_tasks import TaskCheck, check_tasks
    from verl_agentic.data.swe.suite import suites
    from verl_agentic.errors import DataError
    from verl_agentic.rewards.repository.repo_task import TaskStore

    jobs, store, watch = jobs_of(args), TaskStore(args.tasks), CommandTimer()
    tasks = [task for task in store.tasks() if not args.id or task.instance_id in args.id]
    if not tasks or args.runs < 1:
        raise DataError(f"nothing to check, got {len(tasks)} tasks and --runs {args.runs}; check the file and --id")

    async def check() -> tuple[list[TaskCheck], float]:
        async with suites(jobs=jobs, backend=args.backend) as runner:
            with progress("check", is_quiet=args.json) as report:
                return await check_tasks(tasks, store, runner, runs=args.runs, on_result=report), runner.cpu_s

    found, cpu_s = asyncio.run(check())
    wrong = {one.instance_id: list(one.problems) for one in found if not one.ok}
    summary = {"tasks": len(found), "hold": len(found) - len(wrong), "runs": args.runs}
    summary |= watch.times(sandbox_cpu_s=cpu_s) | ({"problems": wrong} if args.json else {})
    rows = [{"key": one.instance_id, "status": "holds" if one.ok else "\n".join(one.problems)} for one in found]
    show_results(rows, as_json=args.json, columns=(), summary=summary)
    return 1 if wrong else 0
