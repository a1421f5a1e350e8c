"""`verl-agentic swe`: make, check, import and export tasks that fix repositories."""

from __future__ import annotations

from verl_agentic.cli.command_group import command_group

COMMANDS = {
    "mine": "make tasks from consecutive releases of packages",
    "split": "make small tasks: one function's part of a release's fix",
    "mutate": "make tasks from synthetic bugs in a release",
    "combine": "make tasks from two bugs in one file",
    "check": "check that every reference solution passes and every base tree fails",
    "import": "read rows of SWE-bench, SWE-Gym, R2E-Gym, SWE-smith or nemotron",
    "export": "write predictions or a task repository for swebench",
}
"""Subcommand -> one line of help."""

add_arguments, run = command_group(
    __name__,
    COMMANDS,
    example="verl-agentic swe mine parse --out tasks/tasks.jsonl && verl-agentic swe check tasks/tasks.jsonl",
    modules={"import": "import_rows", "export": "export_tasks", "check": "check_tasks"},
)
