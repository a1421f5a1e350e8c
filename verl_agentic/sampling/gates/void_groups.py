"""Groups in which too few episodes are left to compare."""

from __future__ import annotations

from verl_agentic.errors import ConfigError
from verl_agentic.sampling.gate import KEEP, Group, Verdict, gate


@gate()
def void_groups(group: Group, *, min_valid: int = 2) -> Verdict:
    """Returns that a group is dropped when fewer than `min_valid` of its sessions are valid, or none of the policy's.

    Args:
        min_valid: a lone survivor has nobody to be compared with, so below 2 this keeps groups without a signal.
    """
    if isinstance(min_valid, bool) or not isinstance(min_valid, int) or min_valid < 1:
        raise ConfigError(f"void_groups needs min_valid >= 1, got {min_valid!r}")
    return KEEP if len(group.valid) >= min_valid and group.own else Verdict(dropped="void")
