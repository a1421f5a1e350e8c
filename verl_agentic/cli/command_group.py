"""Commands with subcommands, each in its own module."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Mapping
from typing import Any


def command_group(
    package: str, commands: Mapping[str, str], *, example: str, modules: Mapping[str, str] | None = None
) -> tuple[Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int]]:
    """Returns `add_arguments` and `run` of a command with subcommands.

    Args:
        package: the package of the command; holds one module for each subcommand.
        commands: subcommand -> one line of help.
        example: a command line for the end of the help.
        modules: subcommand -> its module, if the names differ.
    """
    command = package.rpartition(".")[2]

    def load(name: str) -> Any:
        return importlib.import_module(f"{package}.{(modules or {}).get(name, name)}")

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Adds the subcommands."""
        parser.epilog = f"Example: {example}"
        subparsers = parser.add_subparsers(dest=f"{command}_command", metavar="COMMAND", required=True)
        for name, line in commands.items():
            load(name).add_arguments(subparsers.add_parser(name, help=line, description=sentence(line)))

    def run(args: argparse.Namespace) -> int:
        """Runs the subcommand and returns its exit code."""
        return load(getattr(args, f"{command}_command")).run(args)

    return add_arguments, run


def sentence(line: str) -> str:
    """Returns a line of help as a sentence."""
    return f"{line[0].upper()}{line[1:]}."
