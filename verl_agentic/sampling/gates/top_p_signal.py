"""StarPO-S: keeps the groups whose rewards differ most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verl_agentic.base.errors import ConfigError
from verl_agentic.sampling.gate import KEEP, Group, Verdict, gate


@gate(needs=("reward",), scope="groups")
def top_p_signal(groups: Sequence[Group], *, p: float | None = None, fraction: float | None = None) -> list[Verdict]:
    """Keeps the groups with the highest standard deviations of the reward, and drops the others.

    `p`: the smallest number of them whose standard deviations sum to at least `p * total - 0.01`. `fraction`: `fraction
    * number of groups`, rounded down, but at least one.

    Standard deviations are the population's over valid sessions; ties go to the first group. A group with standard
    deviation 0 is never kept with `p`, and may be kept with `fraction`. The gate uses the shaped reward, as in the
    paper; put `zero_variance`, which uses the raw outcome, before it.

    Args:
        p: share of the summed standard deviations, above 0 and at most 1.
        fraction: share of the groups, above 0 and at most 1. Set exactly one of the two.

    Paper: https://arxiv.org/abs/2504.20073 (its code divides by n - 1, which is equivalent for groups of equal size).
    """
    share = p if fraction is None else fraction
    if (p is None) == (fraction is None) or share is None or not 0 < share <= 1:
        raise ConfigError(
            f"top_p_signal needs p or fraction, above 0 and at most 1, got p={p!r}, fraction={fraction!r}"
        )
    stds = np.array([np.std(rewards) if (rewards := group.known("reward")) else 0.0 for group in groups])
    kept_places = top_share(stds, p=share) if fraction is None else top_fraction(stds, fraction=share)
    return [KEEP if place in kept_places else Verdict(dropped="weak_signal") for place in range(len(groups))]


def top_share(signals: np.ndarray, *, p: float, slack: float = 0.01) -> set[int]:
    """Returns the indices of the fewest signals that sum to `p * sum - slack`; empty if all are 0.

    Args:
        signals: `[G]`, not negative.
        p: share of the sum.
        slack: the default is from the paper's code.
    """
    order = np.argsort(-signals, kind="stable")
    if not len(order) or signals[order[0]] == 0:
        return set()
    reached = np.cumsum(signals[order]) >= p * signals.sum() - slack
    return {int(place) for place in order[: int(np.argmax(reached)) + 1]}


def top_fraction(signals: np.ndarray, *, fraction: float) -> set[int]:
    """Returns the indices of the highest `fraction` of the signals, at least one."""
    order = np.argsort(-signals, kind="stable")
    # 0.29 * 100 is slightly below 29 in floating point.
    return {int(place) for place in order[: max(1, int(fraction * len(order) + 1e-9))]}
