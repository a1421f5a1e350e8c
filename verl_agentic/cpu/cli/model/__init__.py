"""`verl-agentic model`: fetch, merge, probe and compare models."""

from __future__ import annotations

from verl_agentic.cli.command_group import command_group

COMMANDS = {
    "fetch": "fetch a small pretrained model onto this machine, as a Hugging Face folder",
    "merge": "make one model of several that were trained from one base",
    "probe": "test whether models are a good start for RL in an environment; exit code 1 if one is not",
    "front": "compare evaluated models by several figures and show those that no other one beats",
}
"""Subcommand (the name of its module) -> one line of help."""

add_arguments, run = command_group(
    __name__, COMMANDS, example="verl-agentic model merge BASE A B --method ram --out merged"
)
