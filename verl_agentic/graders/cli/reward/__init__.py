"""`verl-agentic reward`: check a rubric on stored trajectories, and compare rubrics and runs."""

from __future__ import annotations

from verl_agentic.cli.command_group import command_group

COMMANDS = {
    "audit": "check a rubric on stored trajectories: leaks, wrong or unstable verdicts, dead or dominant components",
    "lab": "score stored trajectories with another rubric and show what changes",
    "front": "compare runs by several reward parts and show which runs no other run beats",
    "imitate": "train a discriminator between experts and the policy, for the component imitation",
    "progress": "train an estimator of the contribution of each turn to the outcome, for the component progress",
    "steps": "label turns for a process reward model by the success of rollouts that continue from them",
}
"""Subcommand (the name of its module) -> one line of help."""

add_arguments, run = command_group(
    __name__, COMMANDS, example="verl-agentic reward audit outputs/quickstart --rubric rubric.yaml"
)
