"""Stops dynamic sampling with an error if no full batch can be expected; the prompts that fill a batch."""

from __future__ import annotations

import math
from collections import Counter, deque

from verl_agentic.base.errors import ConfigError, StarvationError
from verl_agentic.sampling.gate import Decision

_ADVICE = {
    "all_0": "the tasks are too hard: take easier ones, a better checkpoint, more sessions per prompt or more turns",
    "too_hard": "the tasks are too hard: take easier ones, a better checkpoint, more sessions per prompt or more turns",
    "all_1": "the tasks are too easy: take harder ones, or stop here",
    "too_easy": "the tasks are too easy: take harder ones, or stop here",
    "void": "too few episodes of a group are valid: see `error` in the trajectories, and that rollout.n is above 1",
}


class StarvationGuard:
    """Tracks the last decisions of gates and the number of groups judged for a batch."""

    def __init__(
        self, *, max_drop_rate: float = 0.95, window: int = 128, max_generated_groups: int | None = None
    ) -> None:
        """Makes a guard without history.

        Args:
            max_drop_rate: maximum share of dropped groups; 1 never raises.
            window: number of last groups that count, at least two batches.
            max_generated_groups: maximum number of groups judged for one batch; None: any number.
        """
        self._max_drop_rate = max_drop_rate
        self._max_generated_groups = max_generated_groups
        self._reasons: deque[str] = deque(maxlen=window)
        self._batch: list[str] = []
        """Reasons of dropped groups of the current batch; empty for kept ones."""

    @property
    def keep_rate(self) -> float:
        """Expected share of kept groups, with a prior of two groups of which one was kept."""
        return (1 + sum(not reason for reason in self._reasons)) / (2 + len(self._reasons))

    @property
    def budget_left(self) -> int | None:
        """Number of groups that may still be judged for this batch; None: any number."""
        return None if self._max_generated_groups is None else max(0, self._max_generated_groups - len(self._batch))

    def begin_batch(self, batch_size: int) -> None:
        """Starts a batch. Raises ConfigError if the budget is smaller than the batch."""
        if self._max_generated_groups is not None and self._max_generated_groups < batch_size:
            raise ConfigError(
                f"max_generated_groups must be at least the batch of {batch_size} groups, "
                f"got {self._max_generated_groups}"
            )
        # Groups that end first are not representative, so a window must hold whole batches.
        self._reasons = deque(self._reasons, maxlen=max(self._reasons.maxlen or 1, 2 * batch_size))

    def end_batch(self) -> None:
        """Ends a full batch."""
        self._batch = []

    def record(self, decision: Decision) -> None:
        """Records the decision on a group."""
        self._reasons.append(decision.reason)
        self._batch.append(decision.reason)

    def check(self, *, num_useful: int, batch_size: int, num_inflight: int) -> None:
        """Raises if a full batch cannot be expected.

        Args:
            num_useful: number of groups that could be trained on now.
            batch_size: number of wanted groups.
            num_inflight: number of running groups within the budget.

        Raises:
            StarvationError: with the drop rate by reason, and advice.
        """
        if num_useful >= batch_size:
            return
        have = f"{num_useful} of {batch_size} groups that can be trained on"
        if self.budget_left == 0 and num_inflight == 0:
            raise StarvationError(
                f"the budget of max_generated_groups={self._max_generated_groups} is spent, got {have}: "
                f"{_describe_drops(self._batch)}, or raise the budget"
            )
        dropped = sum(bool(reason) for reason in self._reasons)
        if len(self._reasons) == self._reasons.maxlen and dropped > self._max_drop_rate * len(self._reasons):
            raise StarvationError(
                f"gates drop nearly everything, got {have}: {_describe_drops(list(self._reasons))}, "
                f"or raise max_drop_rate ({self._max_drop_rate:g})"
            )


def _describe_drops(reasons: list[str]) -> str:
    """Returns the drop rate, its parts, and advice for the largest part."""
    parts = Counter(reason for reason in reasons if reason).most_common()
    dropped = sum(count for _, count in parts)
    listed = ", ".join(f"{reason} {count / len(reasons):.0%}" for reason, count in parts) or "nothing"
    advice = _ADVICE.get(parts[0][0], "loosen that gate") if parts else "look at the gates"
    return f"{dropped / max(1, len(reasons)):.0%} of the last {len(reasons)} were dropped ({listed}); {advice}"


def prompts_due(*, batch_size: int, num_useful: int, num_open: int, keep_rate: float, allowed: int) -> int:
    """Returns the expected number of prompts needed beyond the open ones, at most `allowed`.

    Open groups give `keep_rate * num_open` useful ones. For each missing group, `1 / keep_rate` prompts are sent out.

    Args:
        batch_size: number of wanted groups.
        num_useful: number of finished useful groups.
        num_open: number of groups that run or wait for gates.
        keep_rate: expected share of useful groups, above 0.
        allowed: maximum result.
    """
    missing = batch_size - num_useful - keep_rate * num_open
    # The small constant prevents one prompt more due to rounding.
    return max(0, min(allowed, math.ceil(missing / keep_rate - 1e-9)))
