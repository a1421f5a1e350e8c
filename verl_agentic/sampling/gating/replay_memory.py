"""Finished groups that are trained on again: a bounded memory, oldest out first, drawn in order and by weight.

Groups are kept whole, since their members are each other's baseline. A replayed row stands as it was sampled: its
behaviour log-probs and the version of the weights that sampled it stay, or no loss could correct for its age, while
what depends on today's weights is computed anew.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from verl_agentic.errors import DataError
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
    """Oldest weights that sampled one of its tokens."""
    weight: float
    rows: T
    uses: int = 1
    """How often it has been trained on, the first time and the coming one included."""


class GroupReplay(Generic[T]):
    """A memory of at most `capacity` groups."""

    def __init__(
        self, capacity: int, *, priority_share: float = 0.5, max_lag: int | None = None, seed: int = 0
    ) -> None:
        """Makes an empty memory.

        Args:
            capacity: most groups; the one that came first leaves when another comes.
            priority_share: chance of each draw to go by weight. The others go in order: those that were used least,
                the oldest of them first. No source gives a value; this one is ours.
            max_lag: greatest age, in versions of the weights, that a group may have when it is drawn; None: any.
            seed: of the draws.
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
        """Returns a group; None where it is not in the memory any more."""
        return self._groups.get(key)

    def state_dict(self) -> dict[str, Any]:
        """Returns what `load_state_dict` needs: the groups themselves, not copies."""
        return {"groups": list(self._groups.values()), "rng": self._rng.getstate()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what another memory held; of more groups than there is room for, those that came last."""
        self._groups = {group.key: group for group in state["groups"][-self.capacity :]}
        self._rng.setstate(state["rng"])

    def add(self, key: str, *, version: int, weight: float, rows: T) -> ReplayGroup[T] | None:
        """Takes a group that is trained on for the first time; returns the one that had to leave for it.

        Args:
            key: names it; no other group in the memory may have it.
            version: oldest weights that sampled one of its tokens.
            weight: chance to be drawn by weight, relative to the others: its mean reward, or how far its rewards
                spread. A group of weight 0 is only drawn in order.
            rows: what is given back when it is drawn.

        Raises:
            DataError: the key is taken, or the weight is negative or not finite.
        """
        if key in self._groups:
            raise DataError(f"a group is taken into the replay once, got {key!r} again")
        if not (math.isfinite(weight) and weight >= 0):
            raise DataError(f"the weight of a group must be finite and not negative, got {weight} for {key!r}")
        oldest = self._groups.pop(next(iter(self._groups))) if len(self._groups) == self.capacity else None
        self._groups[key] = ReplayGroup(key=key, version=version, weight=weight, rows=rows)
        return oldest

    def drop_stale(self, version: int) -> list[ReplayGroup[T]]:
        """Removes the groups that are too old for training weights of `version`, and returns them."""
        if self.max_lag is None:
            return []
        stale = [group for group in self._groups.values() if version - group.version > self.max_lag]
        for group in stale:
            del self._groups[group.key]
        return stale

    def draw(self, count: int, *, version: int) -> list[ReplayGroup[T]]:
        """Returns groups to train on again, none twice; fewer when there are not so many. They stay in the memory.

        Args:
            count: how many are wanted.
            version: weights that will be trained; what is too old for them is dropped.
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
        """Draws one after the other, each with the chance that its weight has among those that are left."""
        # The greatest of u ** (1 / w) are distributed so; logarithms, for u ** (1 / w) underflows.
        keyed = [
            (math.log(1.0 - self._rng.random()) / group.weight, group)
            for group in self._groups.values()
            if group.weight > 0
        ]
        return [group for _, group in sorted(keyed, key=lambda pair: pair[0], reverse=True)[:count]]


def is_worth_replaying(probs: Floats, *, low: float = 0.5, high: float = 0.95) -> NDArray[np.bool_]:
    """Tells which actions of earlier successes WebRL replays: those with a probability above low, of at most high.

    Args:
        probs: [N] what the present policy gives the action: 1 / its perplexity.
        low: at and below, an action is too far from the policy.
        high: above, there is nothing left to learn from it.

    Paper: https://arxiv.org/abs/2411.02337
    """
    return (probs > low) & (probs <= high)


def check_replayable(columns: Collection[str], tag: Mapping[str, Any]) -> None:
    """Fails when a row could not be trained on again later.

    Args:
        columns: names of the columns that are kept.
        tag: what the trainer keeps beside them.

    Raises:
        DataError: the behaviour log-probs or the version of the weights are missing, or there is a column that depends
            on today's weights.
    """
    missing = [*(name for name in _NEEDED if name not in columns), *([_VERSION] if tag.get(_VERSION) is None else [])]
    if missing:
        raise DataError(
            f"a row that is replayed needs {[*_NEEDED, _VERSION]}, got none of {missing}; set "
            "actor_rollout_ref.rollout.calculate_log_probs=True"
        )
    computed = sorted(_COMPUTED & set(columns))
    if computed:
        raise DataError(
            f"a row must be kept as it was sampled, got {computed} of the weights of its time; leave them out"
        )
