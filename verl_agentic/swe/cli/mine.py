"""`verl-agentic swe mine`: makes tasks from consecutive releases of packages."""

from __future__ import annotations

import argparse

from verl_agentic.cli.options.option_values import whole
from verl_agentic.swe.cli.progress import (
    CommandTimer,
    add_index_options,
    add_out,
    add_run_options,
    mine_options,
    progress,
    show_results,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("packages", nargs="+", metavar="PACKAGE", help="compare the releases of these packages")
    parser.add_argument(
        "--releases", type=whole(1), default=6, metavar="N", help="use the newest N (default %(default)s)"
    )
    add_out(parser)
    add_index_options(parser)
    add_run_options(parser)
    parser.add_argument("--show", action="store_true", help="print the statements of all tasks in both forms")


def run(args: argparse.Namespace) -> int:
    """Mines, prints a table, and returns 0 if there is at least one task, else 1."""
    import asyncio

    from verl_agentic.base.errors import ConfigError
    from verl_agentic.swe.grading.repo_task import TaskStore
    from verl_agentic.swe.releases.mine_packages import mine_packages
    from verl_agentic.swe.suite import suites
    from verl_agentic.swe.task_journal import TaskJournal, tasks_in

    if args.releases < 2:
        raise ConfigError(f"--releases must be at least 2, got {args.releases}; a task compares two releases")
    jobs = args.jobs
    options = mine_options(args, packages=args.packages, releases=args.releases)
    journal, watch = TaskJournal(TaskStore(args.out)), CommandTimer()

    async def mine() -> tuple[list, float]:
        async with suites(jobs=jobs, backend=args.backend) as runner:
            with progress("mine", is_quiet=args.json) as report:
                results = await mine_packages(options, journal, runner, on_result=report)
            return results, runner.cpu_s

    try:
        results, cpu_s = asyncio.run(mine())
        journal.write_tasks()
    finally:
        journal.close()
    tasks = [task for result in results for task in tasks_in(result)]
    summary = {
        "pairs": len(results),
        "tasks": len(tasks),
        "unfair": sum(bool(task.flags) for task in tasks),
        "flaky_tests": sum(result.get("flaky", 0) for result in results),
        "out": str(args.out),
        **watch.times(sandbox_cpu_s=cpu_s),
    }
    columns = ("f2p", "p2p", "lines", "flaky", "flags", "why")
    rows = [
        {**result, "why": str(result.get("why", ""))[:80]} for result in sorted(results, key=lambda row: row["key"])
    ]
    show_results(rows, as_json=args.json, columns=columns, summary=summary)
    if args.show:
        for task in tasks:
            print(
                f"\n# {task.instance_id}\n{task.problem_statement}\n--- or ---\n{task.hints_text}\n{dict(task.flags)}"
            )
    return 0 if tasks else 1
