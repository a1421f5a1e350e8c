"""Seeded single elimination: vectors, byes, ties."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.graders.groups.group_advantages import grpo
from verl_agentic.graders.groups.tournament_ranks import Match, bracket, rank_reward, tournament


def play(size: int, result: Callable[[int, int], float]) -> tuple[list[float], list[list[Match]]]:
    """Returns ranks and the matches of each round."""
    rounds: list[list[Match]] = []
    running = tournament(size)
    matches = next(running)
    while True:
        rounds.append(matches)
        try:
            matches = running.send([result(a, b) for a, b in matches])
        except StopIteration as end:
            return end.value, rounds


def by_strength(strengths: list[float]) -> Callable[[int, int], float]:
    return lambda a, b: 0.5 if strengths[a] == strengths[b] else float(strengths[a] > strengths[b])


def test_brackets_and_rewards_are_those_of_the_vector() -> None:
    assert bracket(4) == [0, 3, 1, 2]
    assert bracket(8) == [0, 7, 3, 4, 1, 6, 2, 5]
    rewards = [rank_reward(rank, 4) for rank in range(4)]
    assert rewards == pytest.approx([1.0, 0.666667, 0.333333, 0.0], abs=1e-6)
    assert grpo(rewards) == pytest.approx([1.161892, 0.387297, -0.387297, -1.161892], abs=1e-6)


def test_eight_players_take_fourteen_matches_where_all_against_all_takes_twenty_eight() -> None:
    _, rounds = play(8, by_strength([3, 1, 4, 1.5, 9, 2.6, 5, 8]))
    assert [len(matches) for matches in rounds] == [7, 4, 2, 1] and 8 * 7 // 2 == 28


def test_byes_go_to_the_best_seeds() -> None:
    assert bracket(6) == [0, None, 3, 4, 1, None, 2, 5]
    # The first player is the middle of the field: 3, 4 and 5 beat it and are seeds 0 to 2, itself is seed 3.
    ranks, rounds = play(6, by_strength([2.5, 1, 2, 3, 4, 5]))
    assert rounds[1] == [(0, 1), (5, 2)]  # seeds 3 and 4, 2 and 5; seeds 0 and 1 (players 3 and 4) rest
    assert [len(matches) for matches in rounds] == [5, 2, 2, 1]
    assert rounds[2:] == [[(3, 0), (4, 5)], [(3, 5)]]
    # 4 (1 of 2 points) and 0 (3 of 7) leave in the semifinals; 1 and 2 before, without a point.
    assert ranks == [3, 4.5, 4.5, 1, 2, 0]


@given(st.integers(2, 17), st.randoms(use_true_random=False))
def test_the_best_wins_and_every_size_takes_as_many_matches_as_it_must(size: int, random: object) -> None:
    strengths = list(range(size))
    random.shuffle(strengths)  # pyright: ignore[reportAttributeAccessIssue]
    ranks, rounds = play(size, by_strength([float(s) for s in strengths]))
    assert ranks[strengths.index(size - 1)] == 0
    assert sum(map(len, rounds)) == 2 * (size - 1)
    assert sum(ranks) == size * (size - 1) / 2
    assert all(0 <= rank_reward(rank, len(ranks)) <= 1 for rank in ranks)


def test_nobody_gains_by_a_place_when_all_are_alike() -> None:
    for size in (2, 3, 4, 7):
        ranks, _ = play(size, lambda a, b: 0.5)
        assert {rank_reward(rank, len(ranks)) for rank in ranks} == {0.5}


def test_two_players_are_ranked_by_both_of_their_matches() -> None:
    assert play(2, by_strength([1, 2]))[0] == [1, 0]
    assert play(2, by_strength([2, 1]))[0] == [0, 1]


def test_losers_of_one_round_are_ranked_by_their_points() -> None:
    # Round 0, against 0: 1 ties, 2 and 3 lose. Points 0: 2.5/3, 1: .5, 2: 0, 3: 0; bracket (0, 3), (1, 2).
    ranks, rounds = play(4, by_strength([2, 2, 0, 1]))
    assert rounds[1:] == [[(0, 3), (1, 2)], [(0, 1)]]
    # The final is a tie and goes to the better seed; 2 and 3 have nothing but defeats and share ranks 2 and 3.
    assert ranks == [0, 1, 2.5, 2.5]
