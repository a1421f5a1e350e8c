"""An ablation: `zero_variance` compares what episodes earned, shaping included, instead of their raw outcomes.

verl loads this module in every process, ahead of its plugins (`VERL_USE_EXTERNAL_MODULES`).
"""

from __future__ import annotations

import dataclasses
import importlib

from verl_agentic.sampling.gate import KEEP, Group, Verdict


def by_reward(group: Group) -> Verdict:
    """Returns that a group is dropped when all of its valid sessions earned the same."""
    rewards = group.known("reward")
    return KEEP if len(rewards) < 2 or len(set(rewards)) > 1 else Verdict(dropped="all_same")


_module = importlib.import_module("verl_agentic.sampling.gates.zero_variance")
_module.zero_variance = dataclasses.replace(  # pyright: ignore[reportAttributeAccessIssue]
    _module.zero_variance, function=by_reward, needs=frozenset({"reward"})
)
