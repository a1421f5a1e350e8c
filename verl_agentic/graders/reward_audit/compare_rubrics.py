"""Comparison of two rubrics on stored trajectories."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from verl_agentic.base.errors import DataError
from verl_agentic.graders.groups.group_advantages import ESTIMATORS, Estimator, is_dropped
from verl_agentic.graders.reward_audit.reward_statistics import spearman
from verl_agentic.graders.stored_samples import StoredSample
from verl_agentic.rewards.rubric import Rubric
from verl_agentic.rewards.scorer import Scorer


@dataclass(frozen=True, kw_only=True)
class TrajectoryReward:
    """The reward of one rubric for one trajectory."""

    reward: float
    """The whole reward, turn rewards of the environment included."""
    acc: float
    """Raw outcome, by which dynamic sampling filters."""
    advantage: float = 0.0


@dataclass(frozen=True, kw_only=True)
class TrajectoryComparison:
    """One trajectory under both rubrics; None if it is void."""

    id: str
    answer: str
    """The policy's answer."""
    old: TrajectoryReward | None
    new: TrajectoryReward | None

    @property
    def change(self) -> float:
        """New advantage minus old one; a void trajectory has none."""
        return (self.new.advantage if self.new else 0.0) - (self.old.advantage if self.old else 0.0)


@dataclass(frozen=True, kw_only=True)
class GroupComparison:
    """One group under both rubrics."""

    name: str
    step: int
    split: str
    samples: tuple[TrajectoryComparison, ...]
    old_mean: float | None
    """Mean rewards without void ones; None if all are void."""
    new_mean: float | None
    is_dropped_old: bool
    """Whether dynamic sampling drops it, because all outcomes are equal."""
    is_dropped_new: bool
    rank_correlation: float | None
    """Rank correlation of its old and new rewards; None if one of them is constant."""


@dataclass(frozen=True, kw_only=True)
class Lab:
    """A run under two rubrics."""

    estimator: Estimator
    groups: tuple[GroupComparison, ...]

    @property
    def samples(self) -> list[TrajectoryComparison]:
        """All trajectories."""
        return [sample for group in self.groups for sample in group.samples]

    def summary(self) -> dict[str, Any]:
        """Returns the statistics of the whole run."""
        both = [(s.old, s.new) for s in self.samples if s.old is not None and s.new is not None]
        inside = [g.rank_correlation for g in self.groups if g.rank_correlation is not None]
        return {
            "estimator": self.estimator,
            "groups": len(self.groups),
            "samples": len(self.samples),
            "void": {"old": sum(s.old is None for s in self.samples), "new": sum(s.new is None for s in self.samples)},
            "reward": {
                "old": _compute_mean([s.old.reward for s in self.samples if s.old]),
                "new": _compute_mean([s.new.reward for s in self.samples if s.new]),
            },
            "acc": {
                "old": _compute_mean([s.old.acc for s in self.samples if s.old]),
                "new": _compute_mean([s.new.acc for s in self.samples if s.new]),
            },
            "dropped": {
                "old": sum(g.is_dropped_old for g in self.groups),
                "new": sum(g.is_dropped_new for g in self.groups),
                "only_old": [g.name for g in self.groups if g.is_dropped_old and not g.is_dropped_new],
                "only_new": [g.name for g in self.groups if g.is_dropped_new and not g.is_dropped_old],
            },
            "rank_correlation": spearman([old.reward for old, _ in both], [new.reward for _, new in both]),
            "rank_correlation_in_groups": _compute_mean(inside),
            "changed_sign": sum(old.advantage * new.advantage < 0 for old, new in both),
        }

    def to_dict(self) -> dict[str, Any]:
        """Returns it as plain JSON values."""
        return {**self.summary(), "by_group": [dataclasses.asdict(group) for group in self.groups]}


async def compare(
    groups: Sequence[Sequence[StoredSample]],
    *,
    new: Rubric,
    old: Rubric | None = None,
    estimator: Estimator = "grpo",
    on_group: Callable[[], None] = lambda: None,
) -> Lab:
    """Returns a run with its old and new rewards.

    Args:
        groups: the trajectories.
        new: the rubric to try.
        old: rubric to compare with; by default the stored scores.
        estimator: computes advantages from rewards.
        on_group: called after each group.

    Raises:
        DataError: without `old`, a score is missing.
    """
    if old is None:
        missing = [stored.sample.id for group in groups for stored in group if stored.score is None]
        if missing:
            raise DataError(f"{len(missing)} samples have no stored score, such as {missing[0]!r}; name the old rubric")
    scorers = [None if rubric is None else Scorer(replace(rubric, on_error="void")) for rubric in (old, new)]
    try:
        comparisons = []
        for group in groups:
            before, after = [
                _with_advantages(_as_stored(group) if scorer is None else await _score_group(scorer, group), estimator)
                for scorer in scorers
            ]
            comparisons.append(_compare_group(group, before, after))
            on_group()
    finally:
        for scorer in scorers:
            if scorer is not None:
                scorer.close()
    return Lab(estimator=estimator, groups=tuple(comparisons))


def _as_stored(group: Sequence[StoredSample]) -> list[TrajectoryReward | None]:
    rewards: list[TrajectoryReward | None] = []
    for stored in group:
        score = stored.score or {}
        total = score.get("score", score.get("acc", 0.0))
        is_void = score.get("void", 0.0) > 0
        rewards.append(
            None if is_void else TrajectoryReward(reward=total + _of_turns(stored), acc=score.get("acc", total))
        )
    return rewards


async def _score_group(scorer: Scorer, group: Sequence[StoredSample]) -> list[TrajectoryReward | None]:
    scores = await scorer.score_group([stored.sample for stored in group])
    return [
        None if score.void is not None else TrajectoryReward(reward=score.total + _of_turns(stored), acc=score.acc)
        for score, stored in zip(scores, group, strict=True)
    ]


def _of_turns(stored: StoredSample) -> float:
    """Returns the environment's turn rewards, which no rubric changes."""
    return sum(turn.reward for turn in stored.sample.turns)


def _with_advantages(rewards: Sequence[TrajectoryReward | None], estimator: Estimator) -> list[TrajectoryReward | None]:
    """Returns the rewards with their advantages; void ones are left out of the group."""
    advantages = iter(ESTIMATORS[estimator]([reward.reward for reward in rewards if reward is not None]))
    return [None if reward is None else replace(reward, advantage=next(advantages)) for reward in rewards]


def _compare_group(
    group: Sequence[StoredSample], before: Sequence[TrajectoryReward | None], after: Sequence[TrajectoryReward | None]
) -> GroupComparison:
    olds, news = ([reward for reward in rewards if reward is not None] for rewards in (before, after))
    both = [(a.reward, b.reward) for a, b in zip(before, after, strict=True) if a is not None and b is not None]
    return GroupComparison(
        name=_label_group(group[0]),
        step=group[0].step,
        split=group[0].split,
        samples=tuple(
            TrajectoryComparison(id=stored.sample.id, answer=stored.sample.final_answer, old=a, new=b)
            for stored, a, b in zip(group, before, after, strict=True)
        ),
        old_mean=_compute_mean([reward.reward for reward in olds]),
        new_mean=_compute_mean([reward.reward for reward in news]),
        is_dropped_old=is_dropped([reward.acc for reward in olds]),
        is_dropped_new=is_dropped([reward.acc for reward in news]),
        rank_correlation=spearman([a for a, _ in both], [b for _, b in both]),
    )


def _label_group(first: StoredSample) -> str:
    """Returns a label of a group: its task and source."""
    task = first.sample.id.rpartition("/")[0] or first.group
    return f"{task}, step {first.step}" if first.step else f"{task}, {first.source}"


def _compute_mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None
