"""`verl-agentic reward`: can a rubric be trusted, and what would another one have changed?"""

from __future__ import annotations

import argparse
import importlib

_COMMANDS = {
    "audit": "look for leaks, wrong verdicts, chance, and dead or dominant parts of a rubric, on stored trajectories",
    "lab": "score stored trajectories by another rubric and show what would have changed",
    "front": "compare runs by several parts of their rewards, and show which of them no other one beats",
    "imitate": "learn to tell experts from the policy, for the component imitation",
    "steps": "label turns for a process reward model by what became of rollouts that went on from them",
}
"""Subcommand, which is the name of its module, and one line of help."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommands."""
    parser.epilog = "Example: verl-agentic reward audit outputs/quickstart --rubric rubric.yaml"
    subparsers = parser.add_subparsers(dest="reward_command", metavar="COMMAND", required=True)
    for name, line in _COMMANDS.items():
        subparser = subparsers.add_parser(name, help=line, description=line[0].upper() + line[1:] + ".")
        _module(name).add_arguments(subparser)


def run(args: argparse.Namespace) -> int:
    """Runs the subcommand and returns its exit code."""
    return _module(args.reward_command).run(args)


def _module(name: str):
    return importlib.import_module(f"verl_agentic.cli.reward.{name}")
