"""`verl-agentic sandbox`: run code in a sandbox, see which backends work here, serve sandboxes to other machines."""

from __future__ import annotations

import argparse
import importlib

_COMMANDS = {
    "run": ("execute", "run a program in a fresh sandbox; the exit code is the program's"),
    "backends": ("backends", "try each backend here and show the result"),
    "serve": ("serve", "serve sandboxes over HTTP, with SandboxFusion's contract"),
}
"""Subcommand -> its module, and one line of help."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommands."""
    parser.epilog = "Example: verl-agentic sandbox run --timeout 5 -- python -c 'print(1)'"
    subparsers = parser.add_subparsers(dest="sandbox_command", metavar="COMMAND", required=True)
    for name, (_, line) in _COMMANDS.items():
        subparser = subparsers.add_parser(name, help=line, description=line[0].upper() + line[1:] + ".")
        _module(name).add_arguments(subparser)


def run(args: argparse.Namespace) -> int:
    """Runs the subcommand and returns its exit code."""
    return _module(args.sandbox_command).run(args)


def _module(name: str):
    return importlib.import_module(f"verl_agentic.cli.sandbox.{_COMMANDS[name][0]}")
