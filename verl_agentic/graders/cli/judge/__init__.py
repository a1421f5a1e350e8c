"""`verl-agentic judge`: test a judge before it rewards a policy."""

from __future__ import annotations

from verl_agentic.cli.command_group import command_group

COMMANDS = {
    "probe": "send wrong answers with attacks to a judge; exit code 1 if it accepts any, or rejects a right answer",
    "bias": "compare a judge's values of answers that are padded, or agree with the user; exit code 1 if they differ",
}
"""Subcommand (the name of its module) -> one line of help."""

add_arguments, run = command_group(
    __name__, COMMANDS, example="verl-agentic judge probe --endpoint http://127.0.0.1:8000/v1 --model NAME"
)
