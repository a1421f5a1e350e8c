"""Episodes that another policy played."""

from __future__ import annotations

from verl_agentic.errors import ConfigError
from verl_agentic.sampling.gate import Group, Verdict, gate, without


@gate(needs=("lag",))
def off_policy(group: Group, *, max_lag: int) -> Verdict:
    """Returns that sessions are dropped which began with weights more than `max_lag` versions old.

    Whole episodes go, the rest of their group stays; a group without any left that the policy played goes, too. It
    looks at the weights that played the first token, while verl's `max_off_policy_threshold` looks at the step in which
    the prompt was handed out, and at whole groups.

    What the policy that is to be updated would say of the tokens is not known of fresh episodes, for verl computes it
    after sampling: its `algorithm.rollout_correction.rollout_rs` rejects by it. `off_policy_ratio` does where it is
    known.

    Args:
        max_lag: 0 keeps what the current weights have played from its first token on.
    """
    if isinstance(max_lag, bool) or not isinstance(max_lag, int) or max_lag < 0:
        raise ConfigError(f"off_policy needs max_lag >= 0, got {max_lag!r}")
    group.known("lag", own=True)
    return without(group, lambda session: (session.lag or 0) > max_lag, reason="off_policy")
