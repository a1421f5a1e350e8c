"""Replay memory of finished groups: bounded, first in first out, drawn in order and by weight.

Groups are kept whole, because siblings are each other's baseline. A replayed row keeps its rollout log-probs and the
version of the weights that sampled it, so that a loss can correct for its age. Columns that depend on the current
weights are recomputed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from verl_agentic.base.errors import DataError
from verl_agentic.sampling.prompts.pass_rates import Floats

T = TypeVar("T")
_NEEDED = ("rollout_log_probs",)
_VERSION = "min_global_steps"
_COMPUTED = frozenset({"old_log_probs", "ref_log_prob", "entropy", "values", "advantages", "returns"})


@dataclass(kw_only=True)
class ReplayGroup(Generic[T]):
    """A group in the memory."""

    key: str
    version: int
    """Version of the oldest weights that sampled one of its tokens."""
    weight: float
    rows: T
    uses: int = 1
    """Number of times it is trained on, including the first and the next time."""


class GroupReplay(Generic[T]):
    """A memory of at most `capacity` groups."""

    def __init__(
        self, capacity: int, *, priority_share: float = 0.5, max_lag: int | None = None, seed: int = 0
    ) -> None:
        """Makes an empty memory.

        Args:
            capacity: maximum number of groups; the oldest group is removed first.
            priority_share: probability that a draw is by weight. Other draws take the least used group, the oldest
                first. The default is ours.
            max_lag: maximum age of a drawn group, in versions of the weights; None: any.
            seed: seed of the draws.
        """
        self.capacity = capacity
        self.priority_share = priority_share
        self.max_lag = max_lag
        self._rng = random.Random(seed)
        self._groups: dict[str, ReplayGroup[T]] = {}  # in the order they came

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def keys(self) -> tuple[str, ...]:
        """The groups, in the order they came."""
        return tuple(self._groups)

    def get(self, key: str) -> ReplayGroup[T] | None:
        """Returns a group, or None if it is no longer in the memory."""
        return self._groups.get(key)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state; it holds the groups themselves, not copies."""
        return {"groups": list(self._groups.values()), "rng": self._rng.getstate()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state; keeps the last groups if there are more than `capacity`."""
        self._groups = {group.key: group for group in state["groups"][-self.capacity :]}
        self._rng.setstate(state["rng"])

    def add(self, key: str, *, version: int, weight: float, rows: T) -> ReplayGroup[T] | None:
        """Adds a group that is trained on for the first time; returns the removed group, if any.

        Args:
            key: unique name of the group.
            version: version of the oldest weights that sampled one of its tokens.
            weight: relative probability of a draw by weight. A group of weight 0 is only drawn in order.
            rows: returned when the group is drawn.

        Raises:
            DataError: the key exists, or the weight is negative or not finite.
        """
        if key in self._groups:
            raise DataError(f"a group is taken into the replay once, got {key!r} again")
        if not (math.isfinite(weight) and weight >= 0):
            raise DataError(f"the weight of a group must be finite and not negative, got {weight} for {key!r}")
        oldest = self._groups.pop(next(iter(self._groups))) if len(self._groups) == self.capacity else None
        self._groups[key] = ReplayGroup(key=key, version=version, weight=weight, rows=rows)
        return oldest

    def drop_stale(self, version: int) -> list[ReplayGroup[T]]:
        """Removes and returns the groups that are too old for weights of this version."""
        if self.max_lag is None:
            return []
        stale = [group for group in self._groups.values() if version - group.version > self.max_lag]
        for group in stale:
            del self._groups[group.key]
        return stale

    def draw(self, count: int, *, version: int) -> list[ReplayGroup[T]]:
        """Returns up to `count` different groups to train on again. They stay in the memory.

        Args:
            count: number of wanted groups.
            version: version of the trained weights; groups too old for it are removed.
        """
        self.drop_stale(version)
        by_weight = self._by_weight(sum(self._rng.random() < self.priority_share for _ in range(count)))
        chosen = {group.key for group in by_weight}
        rest = (group for group in self._groups.values() if group.key not in chosen)
        in_order = sorted(rest, key=lambda group: group.uses)[: max(0, count - len(by_weight))]
        for group in (*by_weight, *in_order):
            group.uses += 1
        return [*by_weight, *in_order]

    def _by_weight(self, count: int) -> list[ReplayGroup[T]]:
        """Draws without replacement, in proportion to the weights."""
        # The highest u ** (1 / w) have this distribution. Logarithms avoid underflow.
        keyed = [
            (math.log(1.0 - self._rng.random()) / group.weight, group)
            for group in self._groups.values()
            if group.weight > 0
        ]
        return [group for _, group in sorted(keyed, key=lambda pair: pair[0], reverse=True)[:count]]


def is_worth_replaying(probs: Floats, *, low: float = 0.5, high: float = 0.95) -> NDArray[np.bool_]:
    """Returns which actions of earlier successes WebRL replays: those with a probability in `(low, high]`.

    Args:
        probs: [N] probabilities under the current policy: 1 / perplexity.
        low: up to this, an action is too far from the policy.
        high: above this, an action is already learnt.

    Paper: https://arxiv.org/abs/2411.02337
    """
    return (probs > low) & (probs <= high)


def check_replayable(columns: Collection[str], tag: Mapping[str, Any]) -> None:
    """Raises unless a row can be replayed.

    Args:
        columns: names of the stored columns.
        tag: the trainer's metadata of the row.

    Raises:
        DataError: the rollout log-probs or the version of the weights are missing, or a column depends on the current
            weights.
    """
    missing = [*(name for name in _NEEDED if name not in columns), *([_VERSION] if tag.get(_VERSION) is None else [])]
    if missing:
        raise DataError(
            f"a row that is replayed needs {[*_NEEDED, _VERSION]}, got none of {missing}; set "
            "actor_rollout_ref.rollout.calculate_log_probs=True"
        )
    computed = sorted(_COMPUTED & set(columns))
    if computed:
        raise DataError(f"a row must be kept as it was sampled, got {computed} of old weights; leave them out")
