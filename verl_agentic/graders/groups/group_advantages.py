"""Advantages of a group's rewards, one number per trajectory, by estimators of verl and of papers."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

Estimator = Literal["grpo", "dr_grpo", "rloo"]
_EPSILON = 1e-6  # verl's, against a standard deviation of 0


def grpo(rewards: Sequence[float]) -> list[float]:
    """Returns (reward - mean) / (standard deviation + 1e-6), with n - 1 under the root, as verl has it.

    Deviation: a group of one gets 0; verl's gives it its reward.

    Paper: https://arxiv.org/abs/2402.03300 (section 4.1.2)
    """
    if len(rewards) < 2:
        return [0.0] * len(rewards)
    mean, deviation = statistics.fmean(rewards), statistics.stdev(rewards)
    return [(reward - mean) / (deviation + _EPSILON) for reward in rewards]


def dr_grpo(rewards: Sequence[float]) -> list[float]:
    """Returns reward - mean; 0 for a group of one.

    Paper: https://arxiv.org/abs/2503.20783 (section 3.2)
    """
    mean = statistics.fmean(rewards) if rewards else 0.0
    return [reward - mean for reward in rewards]


def rloo(rewards: Sequence[float]) -> list[float]:
    """Returns reward - mean of the others; 0 for a group of one.

    Paper: https://arxiv.org/abs/2402.14740 (section 3.4)
    """
    others = len(rewards) - 1
    if others < 1:
        return [0.0] * len(rewards)
    total = sum(rewards)
    return [reward - (total - reward) / others for reward in rewards]


ESTIMATORS: Mapping[Estimator, Callable[[Sequence[float]], list[float]]] = {
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "rloo": rloo,
}


def is_dropped(accs: Sequence[float]) -> bool:
    """Returns whether dynamic sampling drops a group: all its outcomes are equal. verl keeps a group of one.

    Paper: https://arxiv.org/abs/2503.14476 (section 3.2)
    """
    return len(accs) > 1 and max(accs) - min(accs) <= 1e-9
