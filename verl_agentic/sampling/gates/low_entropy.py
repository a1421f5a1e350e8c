"""Episodes of a policy that did not choose any more."""

from __future__ import annotations

from verl_agentic.errors import ConfigError
from verl_agentic.sampling.gate import Group, Verdict, gate, without


@gate(needs=("entropy",))
def low_entropy(group: Group, *, floor: float = 0.05) -> Verdict:
    """Returns that sessions are dropped whose mean entropy per sampled token is below a floor.

    Whole episodes go, the rest of their group stays; a group without any left that the policy played goes, too. Before
    an update nobody has computed entropies: the replay buffer takes the mean of `-log pi` over the sampled tokens,
    which is expected to be the entropy where the sampling temperature is 1 and no top-p or top-k cuts the distribution.

    The rule and its value are our reading of a survey that names it without a formula.

    Args:
        floor: in nats.
    """
    if not floor >= 0:
        raise ConfigError(f"low_entropy needs floor >= 0, got {floor!r}")
    group.known("entropy", own=True)
    return without(group, lambda session: (session.entropy or 0.0) < floor, reason="low_entropy")
