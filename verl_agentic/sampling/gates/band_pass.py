"""Tasks that are nearly always, or nearly never, solved."""

from __future__ import annotations

from verl_agentic.errors import ConfigError
from verl_agentic.sampling.gate import KEEP, Group, Verdict, gate


@gate(needs=("acc",))
def band_pass(group: Group, *, low: float, high: float) -> Verdict:
    """Returns that a group is dropped unless the mean raw outcome of what the policy played lies in `[low, high]`.

    A group without such sessions is kept: `void_groups` decides about it.

    Args:
        low: the smallest mean that is kept.
        high: the greatest one.
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
