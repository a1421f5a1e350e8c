"""Groups whose episodes all ended the same say nothing about what was better."""

from __future__ import annotations

from verl_agentic.sampling.gate import KEEP, Group, Verdict, gate


@gate(needs=("acc",))
def zero_variance(group: Group) -> Verdict:
    """Returns that a group is dropped when all of its valid sessions have the same raw outcome.

    The values are compared exactly: a standard deviation of equal floats need not be 0.0 (three times 0.1), and one
    that is 0.0 may hide values that differ (1e-200). The outcome is `acc`, not the reward: among right answers of
    different length, a length penalty makes a difference that says nothing of being right.

    A group with fewer than two valid sessions is kept: `void_groups` decides about it. A script's session counts: what
    the policy failed at differs from what it shows.

    Paper: https://arxiv.org/abs/2503.14476 (DAPO, eq. 11: 0 < right answers < G). Deviations: outcomes may be any
    numbers.
    """
    outcomes = group.known("acc")
    if len(outcomes) < 2 or any(outcome != outcomes[0] for outcome in outcomes):
        return KEEP
    return Verdict(dropped=_NAMES.get(outcomes[0], "all_same"))


_NAMES = {0.0: "all_0", 1.0: "all_1"}
