"""StarPO-S: the groups whose rewards differ most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verl_agentic.errors import ConfigError
from verl_agentic.sampling.gate import KEEP, Group, Verdict, gate


@gate(needs=("reward",), scope="groups")
def top_p_signal(groups: Sequence[Group], *, p: float | None = None, fraction: float | None = None) -> list[Verdict]:
    """Returns that all groups are dropped but those with the greatest standard deviations of the reward.

    `p`: the smallest number of them whose standard deviations sum to at least `p * total - 0.01`.
    `fraction`: `fraction * number of groups`, rounded down, but at least one.

    Standard deviations are those of the population (divided by n) over valid sessions; among equal ones the first
    group wins. A group that says nothing (0) is not kept for its rank with `p`, and is with `fraction`. The paper
    looks at the shaped reward, as this does: have `zero_variance` ahead of it, which looks at the raw outcome.

    Args:
        p: share of the summed standard deviations, above 0 and at most 1.
        fraction: share of the groups, above 0 and at most 1; give one of the two.

    Paper: https://arxiv.org/abs/2504.20073 (its code divides by n - 1, which is the same for groups of equal size).
    """
    share = p if fraction is None else fraction
    if (p is None) == (fraction is None) or share is None or not 0 < share <= 1:
        raise ConfigError(
            f"top_p_signal needs p or fraction, above 0 and at most 1, got p={p!r} and fraction={fraction!r}"
        )
    stds = np.array([np.std(rewards) if (rewards := group.known("reward")) else 0.0 for group in groups])
    kept = top_share(stds, p=share) if fraction is None else top_fraction(stds, fraction=share)
    return [KEEP if place in kept else Verdict(dropped="weak_signal") for place in range(len(groups))]


def top_share(signals: np.ndarray, *, p: float, slack: float = 0.01) -> set[int]:
    """Returns the places of the greatest signals which together reach `p * sum - slack`; none when all are 0.

    Args:
        signals: `[G]`, none of them negative.
        p: share of the sum.
        slack: below which a rest of the sum does not count; the paper's code has 0.01.
    """
    order = np.argsort(-signals, kind="stable")
    if not len(order) or signals[order[0]] == 0:
        return set()
    reached = np.cumsum(signals[order]) >= p * signals.sum() - slack
    return {int(place) for place in order[: int(np.argmax(reached)) + 1]}


def top_fraction(signals: np.ndarray, *, fraction: float) -> set[int]:
    """Returns the places of the greatest `fraction` of the signals, at least one of them."""
    order = np.argsort(-signals, kind="stable")
    # 0.29 * 100 is meant to be 29, and is a little less.
    return {int(place) for place in order[: max(1, int(fraction * len(order) + 1e-9))]}
