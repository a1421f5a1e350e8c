"""Drops episodes that are unlikely under the trained policy."""

from __future__ import annotations

from verl_agentic.base.errors import ConfigError
from verl_agentic.sampling.gate import Group, Verdict, gate, without


@gate(needs=("ratio",))
def off_policy_ratio(group: Group, *, low: float = 0.5, high: float = 5.0) -> Verdict:
    """Drops sessions whose ratio `pi_train / pi_rollout` lies outside of `[low, high]`.

    The ratio is the geometric mean over the sampled tokens, so it does not depend on length. Whole episodes are
    dropped; the rest of their group stays. A group is dropped if no session of the policy is left. The rows need
    log-probs of the trained policy (`old_log_probs`), which only replayed rows have. The defaults are IcePop's bounds
    for single tokens; their use for episodes is ours.
    """
    if not 0 <= low <= 1 <= high:
        raise ConfigError(f"off_policy_ratio needs 0 <= low <= 1 <= high, got {low!r} and {high!r}")
    group.known("ratio", own=True)
    return without(group, lambda session: not low <= (session.ratio or 0.0) <= high, reason="off_policy")
