"""The run of the subcommands that break good trees."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_agentic.swe.cli.progress import CommandTimer, Report, add_run_options, progress, show_results

if TYPE_CHECKING:
    from verl_agentic.swe.suite import Suites
    from verl_agentic.swe.task_journal import TaskJournal

    Make = Callable[[TaskJournal, Suites, Report], Awaitable[list[dict[str, Any]]]]


def add_bug_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of commands that try bugs."""
    add_run_options(parser)


def make_bug_tasks(args: argparse.Namespace, name: str, out: Path, make: Make) -> int:
    """Makes tasks, adds them to a file and prints a table; returns 0 if there is at least one, else 1."""
    import asyncio

    from verl_agentic.swe.grading.repo_task import TaskStore
    from verl_agentic.swe.suite import suites
    from verl_agentic.swe.task_journal import TaskJournal, statuses, tasks_in

    jobs = args.jobs
    journal, watch = TaskJournal(TaskStore(out)), CommandTimer()

    async def run() -> tuple[list[dict[str, Any]], float]:
        async with suites(jobs=jobs, backend=args.backend) as runner:
            with progress(name, is_quiet=args.json) as report:
                return await make(journal, runner, report), runner.cpu_s

    try:
        results, cpu_s = asyncio.run(run())
        journal.write_tasks()
    finally:
        journal.close()
    tasks = [task for result in results for task in tasks_in(result)]
    lines = [result["lines"] for result in results if result.get("lines")]
    summary = {
        "tried": len(results),
        "tasks": len(tasks),
        "with_1_to_10_failing_tests": sum(len(task.fail_to_pass) <= 10 for task in tasks),
        "lines_median": statistics.median(lines) if lines else 0,
        "results": statuses(results),
        "out": str(out),
        **watch.times(sandbox_cpu_s=cpu_s),
    }
    show_results(results, as_json=args.json, columns=("f2p", "p2p", "lines", "why"), summary=summary)
    return 0 if tasks else 1
