"""`verl-agentic sandbox`: run code in a sandbox, try the backends, serve sandboxes to other machines."""

from __future__ import annotations

from verl_agentic.cli.command_group import command_group

COMMANDS = {
    "run": "run a program in a fresh sandbox and exit with its exit code",
    "backends": "try each sandbox backend on this machine and show the result",
    "serve": "serve sandboxes over HTTP, with SandboxFusion's contract",
}
"""Subcommand (the name of its module) -> one line of help."""

add_arguments, run = command_group(
    __name__,
    COMMANDS,
    example="verl-agentic sandbox run --timeout 5 -- python -c 'print(1)'",
    modules={"run": "execute"},
)
