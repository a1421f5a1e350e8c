"""`verl-agentic env`: list, create, validate, play and serve environments."""

from __future__ import annotations

from verl_agentic.cli.command_group import command_group

COMMANDS = {
    "list": "list the bundled and the installed environments",
    "new": "write a working environment to start from",
    "validate": "check that an environment gives solutions 1 and everything else 0, never fails, and leaks no answer",
    "play": "play one episode yourself in the terminal",
    "serve": "serve an environment over HTTP, for trainers on other machines or in other interpreters",
}
"""Subcommand (the name of its module) -> one line of help."""

add_arguments, run = command_group(
    __name__, COMMANDS, example="verl-agentic env new my_env && verl-agentic env validate ./my_env --count 16"
)
