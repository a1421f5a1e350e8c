"""Drops groups in which all episodes have the same outcome."""

from __future__ import annotations

from verl_agentic.sampling.gate import KEEP, Group, Verdict, gate


@gate(needs=("acc",))
def zero_variance(group: Group) -> Verdict:
    """Drops groups whose valid sessions all have the same raw outcome.

    Values are compared exactly, because the standard deviation of equal floats need not be 0.0 (three times 0.1), and
    may be 0.0 for different ones (1e-200). The outcome is `acc`, not the reward: a length penalty makes rewards of
    right answers differ.

    Groups with fewer than two valid sessions are kept; use `void_groups` for them. External sessions count.

    Paper: https://arxiv.org/abs/2503.14476 (DAPO, eq. 11: 0 < right answers < G). Deviations: outcomes may be any
    numbers.
    """
    outcomes = group.known("acc")
    if len(outcomes) < 2 or any(outcome != outcomes[0] for outcome in outcomes):
        return KEEP
    return Verdict(dropped=_NAMES.get(outcomes[0], "all_same"))


_NAMES = {0.0: "all_0", 1.0: "all_1"}
