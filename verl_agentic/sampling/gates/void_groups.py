"""Drops groups with too few valid episodes."""

from __future__ import annotations

from verl_agentic.base.errors import ConfigError
from verl_agentic.sampling.gate import KEEP, Group, Verdict, gate


@gate()
def void_groups(group: Group, *, min_valid: int = 2) -> Verdict:
    """Drops groups with fewer than `min_valid` valid sessions, or without a valid session of the policy."""
    if isinstance(min_valid, bool) or not isinstance(min_valid, int) or min_valid < 1:
        raise ConfigError(f"void_groups needs min_valid >= 1, got {min_valid!r}")
    return KEEP if len(group.valid) >= min_valid and group.own else Verdict(dropped="void")
