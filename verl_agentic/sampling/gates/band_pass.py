"""Drops tasks that are almost always or almost never solved."""

from __future__ import annotations

from verl_agentic.base.errors import ConfigError
from verl_agentic.sampling.gate import KEEP, Group, Verdict, gate


@gate(needs=("acc",))
def band_pass(group: Group, *, low: float, high: float) -> Verdict:
    """Drops groups whose mean raw outcome over the policy's sessions lies outside of `[low, high]`.

    Groups without such sessions are kept; use `void_groups` for them.
    """
    if not low <= high:
        raise ConfigError(f"band_pass needs low <= high, got {low!r} and {high!r}")
    outcomes = group.known("acc", own=True)
    if not outcomes:
        return KEEP
    mean = sum(outcomes) / len(outcomes)
    if low <= mean <= high:
        return KEEP
    return Verdict(dropped="too_hard" if mean < low else "too_easy")
