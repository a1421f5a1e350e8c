"""`verl-agentic swe combine`: makes tasks from two bugs in one file."""

from __future__ import annotations

import argparse
from pathlib import Path

from verl_agentic.cli.options.option_values import whole
from verl_agentic.swe.cli.bug_tasks import add_bug_options, make_bug_tasks


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("tasks", type=Path, help="use the small tasks of this file, and add new ones to it")
    parser.add_argument("--max", type=whole(1), default=20, metavar="N", help="try N pairs per release (default: 20)")
    add_bug_options(parser)


def run(args: argparse.Namespace) -> int:
    """Combines, prints a table, and returns 0 if there is at least one task, else 1."""
    from verl_agentic.swe.bugs.break_trees import combine_tasks

    def make(journal, suites, report):
        return combine_tasks(list(journal.store.tasks()), journal, suites, count=args.max, on_result=report)

    return make_bug_tasks(args, "combine", args.tasks, make)
