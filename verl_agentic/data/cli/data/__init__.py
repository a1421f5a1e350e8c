"""`verl-agentic data`: make data sets, check, mix and split them."""

from __future__ import annotations

from verl_agentic.cli.command_group import command_group

COMMANDS = {
    "import": "write rows of a published data set for the environment that takes them",
    "export": "write trajectories of a run as data for SFT, DPO or reward models, with the ids and masks of its log",
    "check": "find rows that repeat earlier rows, or rows of other files",
    "make": "make rows of a kind with a check that each must pass",
    "mix": "write rows of several files in one, by shares of rows or tokens",
    "split": "divide rows into rows for SFT and rows for RL that share no task",
}
"""Subcommand -> one line of help."""

add_arguments, run = command_group(
    __name__,
    COMMANDS,
    example="verl-agentic data export outputs/quickstart --as sft --where 'acc >= 1' --out sft.parquet",
    modules={"import": "import_data"},
)
