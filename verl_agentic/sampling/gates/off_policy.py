"""Drops episodes of old weights."""

from __future__ import annotations

from verl_agentic.base.errors import ConfigError
from verl_agentic.sampling.gate import Group, Verdict, gate, without


@gate(needs=("lag",))
def off_policy(group: Group, *, max_lag: int) -> Verdict:
    """Drops sessions that started with weights more than `max_lag` versions old.

    Whole episodes are dropped; the rest of their group stays. A group is dropped if no session of the policy is left.
    The gate uses the weights of the first token. verl's `max_off_policy_threshold` uses the step in which the prompt
    was sent out, and drops whole groups. Log-probs under the trained policy are unknown for new episodes, because verl
    computes them after sampling. For these, use verl's `algorithm.rollout_correction.rollout_rs`; where they are known,
    use `off_policy_ratio`.

    Args:
        max_lag: 0 keeps only episodes that the current weights generated from the first token on.
    """
    if isinstance(max_lag, bool) or not isinstance(max_lag, int) or max_lag < 0:
        raise ConfigError(f"off_policy needs max_lag >= 0, got {max_lag!r}")
    group.known("lag", own=True)
    return without(group, lambda session: (session.lag or 0) > max_lag, reason="off_policy")
