"""What several verdicts come to; None stands for a verdict that there is not."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Literal, TypeVar

Vote = TypeVar("Vote", bound=Hashable)
Aggregate = Literal["median", "mean_minus_std", "min"]


def majority(votes: Sequence[Vote | None]) -> Vote | None:
    """Returns the vote of more than half of all judges; None when there is none.

    Who gave no verdict is for nobody: `[1, 1, None]` is 1, `[1, 0, None]` and `[1, None, None]` are None, and so is a
    tie. The literature's form takes a tie and a failure for 0, which pays the policy for outages of the judge.
    """
    counts = Counter(vote for vote in votes if vote is not None)
    if not counts:
        return None
    vote, count = counts.most_common(1)[0]
    return vote if 2 * count > len(votes) else None


def passed(votes: Sequence[float | None], *, num_against: int = 0) -> float | None:
    """Returns 1 or 0 as more than half of all judges say; None when there is no such majority.

    0, too, where votes against that stand for invalid answers (`num_against`) have prevented a majority: one that not
    even the judges without an answer could make.

    Args:
        votes: 1 or 0 of each judge; None of one without a verdict.
        num_against: how many of those without a verdict count as votes against.
    """
    num_missing = sum(vote is None for vote in votes) - num_against
    decided = majority([*(vote for vote in votes if vote is not None), *[0.0] * num_against, *[None] * num_missing])
    is_prevented = num_against > 0 and 2 * (votes.count(1.0) + num_missing) <= len(votes)
    return 0.0 if decided is None and is_prevented else decided


def combined(
    scores: Sequence[float | None], *, aggregate: Aggregate = "median", max_spread: float, num_zeros: int = 0
) -> float | None:
    """Returns what several scores come to; None when half or more are missing, or they lie too far apart.

    Args:
        scores: one of each judge; None of one without a verdict.
        aggregate: see `conservative`, or the median.
        max_spread: greatest distance between two scores that still agree.
        num_zeros: how many of those without a verdict count as scores of 0; they are no disagreement.
    """
    given = [score for score in scores if score is not None]
    known = [*given, *[0.0] * num_zeros]
    if 2 * len(known) <= len(scores) or (given and max(given) - min(given) > max_spread):
        return None
    return statistics.median(known) if aggregate == "median" else conservative(known, aggregate=aggregate)


def conservative(scores: Sequence[float], *, aggregate: Literal["mean_minus_std", "min"]) -> float:
    """Returns a score that no single generous judge can raise: `mean - std` (ddof 0), not below 0, or the least."""
    if aggregate == "min":
        return min(scores)
    return max(0.0, statistics.fmean(scores) - statistics.pstdev(scores))
