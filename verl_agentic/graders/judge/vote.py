"""Combines several verdicts; None is a missing verdict."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Literal, TypeVar

Vote = TypeVar("Vote", bound=Hashable)
Aggregate = Literal["median", "mean_minus_std", "min"]


def majority(votes: Sequence[Vote | None]) -> Vote | None:
    """Returns the vote of more than half of all judges; None if there is none.

    Missing verdicts count for no side: `[1, 1, None]` gives 1; `[1, 0, None]`, `[1, None, None]` and ties give None.
    The literature counts ties and failures as 0, so outages of the judge affect the reward.
    """
    counts = Counter(vote for vote in votes if vote is not None)
    if not counts:
        return None
    vote, count = counts.most_common(1)[0]
    return vote if 2 * count > len(votes) else None


def passed(votes: Sequence[float | None], *, num_against: int = 0) -> float | None:
    """Returns the vote (1 or 0) of more than half of all judges, or None.

    Also 0 if the votes for invalid answers (`num_against`) prevent a majority of 1 that missing answers could not have
    made.

    Args:
        votes: 1, 0 or None (no verdict) of each judge.
        num_against: how many of the missing verdicts count as votes against.
    """
    num_missing = sum(vote is None for vote in votes) - num_against
    decided = majority([*(vote for vote in votes if vote is not None), *[0.0] * num_against, *[None] * num_missing])
    is_prevented = num_against > 0 and 2 * (votes.count(1.0) + num_missing) <= len(votes)
    return 0.0 if decided is None and is_prevented else decided


def combined(
    scores: Sequence[float | None], *, aggregate: Aggregate = "median", max_spread: float, num_zeros: int = 0
) -> float | None:
    """Combines scores; None if half or more are missing, or if they disagree.

    Args:
        scores: score or None (no verdict) of each judge.
        aggregate: see `conservative`, or the median.
        max_spread: maximum spread of scores that agree.
        num_zeros: how many of the missing verdicts count as 0, without disagreement.
    """
    valid_scores = [score for score in scores if score is not None]
    all_scores = [*valid_scores, *[0.0] * num_zeros]
    if 2 * len(all_scores) <= len(scores) or (valid_scores and max(valid_scores) - min(valid_scores) > max_spread):
        return None
    return statistics.median(all_scores) if aggregate == "median" else conservative(all_scores, aggregate=aggregate)


def conservative(scores: Sequence[float], *, aggregate: Literal["mean_minus_std", "min"]) -> float:
    """Returns a conservative score: `mean - std` (ddof 0), at least 0, or the minimum."""
    if aggregate == "min":
        return min(scores)
    return max(0.0, statistics.fmean(scores) - statistics.pstdev(scores))
