"""Episodes whose tokens the policy that is trained would not have said."""

from __future__ import annotations

from verl_agentic.errors import ConfigError
from verl_agentic.sampling.gate import Group, Verdict, gate, without


@gate(needs=("ratio",))
def off_policy_ratio(group: Group, *, low: float = 0.5, high: float = 5.0) -> Verdict:
    """Returns that sessions are dropped whose ratio `pi_train / pi_rollout` lies outside of `[low, high]`.

    The ratio is the geometric mean over the sampled tokens, so it does not fall with length. Whole episodes go, the
    rest of their group stays; a group without any left that the policy played goes, too. It needs log-probs of the
    policy that is to be updated (`old_log_probs`) in the rows: those that verl has trained on before have them, fresh
    ones do not.

    The defaults are IcePop's bounds, which it applies to single tokens; that an episode is dropped by its mean is our
    reading.

    Args:
        low: the smallest ratio that is kept.
        high: the greatest one.
    """
    if not 0 <= low <= 1 <= high:
        raise ConfigError(f"off_policy_ratio needs 0 <= low <= 1 <= high, got {low!r} and {high!r}")
    group.known("ratio", own=True)
    return without(group, lambda session: not low <= (session.ratio or 0.0) <= high, reason="off_policy")
