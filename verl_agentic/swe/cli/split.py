"""`verl-agentic swe split`: makes small tasks from the fixes of releases."""

from __future__ import annotations

import argparse
from pathlib import Path

from verl_agentic.swe.cli.bug_tasks import add_bug_options, make_bug_tasks


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("tasks", type=Path, help="use the release tasks of this file, and add new ones to it")
    add_bug_options(parser)


def run(args: argparse.Namespace) -> int:
    """Splits, prints a table, and returns 0 if there is at least one task, else 1."""
    from verl_agentic.base.errors import DataError
    from verl_agentic.swe.bugs.break_trees import split_tasks

    def make(journal, suites, report):
        tasks = [task for task in journal.store.tasks() if task.kind == "release"]
        if not tasks:
            raise DataError(f"the file has no release tasks, got {args.tasks}; run verl-agentic swe mine first")
        return split_tasks(tasks, journal, suites, on_result=report)

    return make_bug_tasks(args, "split", args.tasks, make)
