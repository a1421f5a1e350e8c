"""Drops episodes of low entropy."""

from __future__ import annotations

from verl_agentic.base.errors import ConfigError
from verl_agentic.sampling.gate import Group, Verdict, gate, without


@gate(needs=("entropy",))
def low_entropy(group: Group, *, floor: float = 0.05) -> Verdict:
    """Drops sessions whose mean entropy per sampled token is below `floor`.

    Whole episodes are dropped; the rest of their group stays. A group is dropped if no session of the policy is left.
    Entropies are not computed before an update. So the replay buffer passes the mean of `-log pi` over sampled tokens,
    whose expectation is the entropy at sampling temperature 1 without top-p or top-k. The rule and its value are our
    reading of a survey that gives no formula.

    Args:
        floor: minimum entropy in nats.
    """
    if not floor >= 0:
        raise ConfigError(f"low_entropy needs floor >= 0, got {floor!r}")
    group.known("entropy", own=True)
    return without(group, lambda session: (session.entropy or 0.0) < floor, reason="low_entropy")
