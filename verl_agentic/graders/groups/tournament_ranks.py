"""A seeded single-elimination tournament: matches and ranks, independent of the judge."""

from __future__ import annotations

import statistics
from collections.abc import Generator, Mapping, Sequence

Match = tuple[int, int]
Results = Sequence[float]
"""Points of the first player of each match: 1 won, 0 lost, 0.5 tie."""


def bracket(size: int) -> list[int | None]:
    """Returns the seeds in playing order, neighbours first; None is a bye, and the best seeds meet last.

    `[0, 3, 1, 2]` for 4, `[0, 7, 3, 4, 1, 6, 2, 5]` for 8. For other sizes the best seeds have a bye in the first
    round; the reference implementation closes the gaps instead, which breaks the seeding.
    """
    order = [0]
    while len(order) < size:
        order = [seed for upper in order for seed in (upper, 2 * len(order) - 1 - upper)]
    return [seed if seed < size else None for seed in order]


def tournament(size: int) -> Generator[list[Match], Results, list[float]]:
    """Yields the matches of each round, takes their results, and returns each player's rank: 0 for the best.

    Round 0 seeds: each against player 0, N - 1 matches. Then N - 1 matches of the bracket; a tie goes to the better
    seed. Players who leave in a later round rank higher; within a round, the mean points over all own matches decide.
    Tied players share the mean of their ranks. (The reference implementation breaks ties by position.)

    Args:
        size: number of players, at least 2.
    """
    points: dict[int, list[float]] = {player: [] for player in range(size)}
    seeding = [(player, 0) for player in range(1, size)]
    _add_points(points, seeding, (yield seeding))
    seeds = sorted(range(size), key=lambda player: -statistics.fmean(points[player]))
    seed_of = {player: seed for seed, player in enumerate(seeds)}
    active: list[int | None] = [None if seed is None else seeds[seed] for seed in bracket(size)]
    groups: list[list[int]] = []
    while len(active) > 1:
        pairs = list(zip(active[::2], active[1::2], strict=True))
        matches = [(a, b) for a, b in pairs if a is not None and b is not None]
        results = yield matches
        _add_points(points, matches, results)
        won = {match: _choose_winner(match, result, seed_of) for match, result in zip(matches, results, strict=True)}
        groups.append([b if won[a, b] == a else a for a, b in matches])
        active = [won[a, b] if a is not None and b is not None else (b if a is None else a) for a, b in pairs]
    groups.append([player for player in active if player is not None])
    if all(point == 0.5 for played in points.values() for point in played):
        return [(size - 1) / 2] * size
    return _compute_ranks(groups, points)


def _add_points(points: Mapping[int, list[float]], matches: Sequence[Match], results: Results) -> None:
    for (first, second), result in zip(matches, results, strict=True):
        points[first].append(result)
        points[second].append(1.0 - result)


def _choose_winner(match: Match, result: float, seed_of: Mapping[int, int]) -> int:
    first, second = match
    if result == 0.5:
        return min(match, key=lambda player: seed_of[player])
    return first if result > 0.5 else second


def _compute_ranks(groups: Sequence[Sequence[int]], points: Mapping[int, Sequence[float]]) -> list[float]:
    """Returns each player's rank; `groups` are the players who left in each round, the champion last."""
    strengths = {
        player: (index, statistics.fmean(points[player])) for index, group in enumerate(groups) for player in group
    }
    order = sorted(strengths.values(), reverse=True)
    return [
        order.index(strengths[player]) + (order.count(strengths[player]) - 1) / 2 for player in range(len(strengths))
    ]


def rank_reward(rank: float, size: int) -> float:
    """Returns `1 - rank / (N - 1)`.

    Args:
        rank: 0 for the best.
        size: N, at least 2.
    """
    return 1.0 - rank / (size - 1)
