"""Replay of finished groups."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.base.errors import DataError
from verl_agentic.sampling.gating.replay_memory import GroupReplay, check_replayable, is_worth_replaying

REWARDS = {"a": 1.0, "b": 0.0, "c": 1.0}
VSPO_VALUES = {"none": 0.0, "one": 0.32, "two": 0.293939, "three": 0.195959, "four": 0.08}


def replay(weights: dict[str, float], *, capacity: int = 3, version: int = 1, **options: object) -> GroupReplay[str]:
    made: GroupReplay[str] = GroupReplay(capacity, **options)  # type: ignore[arg-type]
    for key, weight in weights.items():
        made.add(key, version=version, weight=weight, rows=key.upper())
    return made


def test_a_full_memory_gives_up_the_group_that_came_first() -> None:
    memory = replay(REWARDS)
    first = memory.add("d", version=1, weight=1.0, rows="D")
    assert first is not None and (first.key, first.rows) == ("a", "A")
    assert memory.keys == ("b", "c", "d") and len(memory) == 3
    memory.draw(1, version=1)
    second = memory.add("e", version=1, weight=0.0, rows="E")
    assert second is not None and second.key == "b", "being drawn does not make a group younger"


@pytest.mark.parametrize("weights", [REWARDS, {"a": 3.0, "b": 1.0, "c": 0.5}, VSPO_VALUES])
def test_draws_by_weight_come_as_often_as_their_weight_within_three_sigma(weights: dict[str, float]) -> None:
    memory = replay(weights, capacity=len(weights), priority_share=1.0, seed=5)
    total, draws = sum(weights.values()), 4000
    counts = Counter(group.key for _ in range(draws) for group in memory.draw(1, version=1))
    for key, weight in weights.items():
        share = weight / total
        sigma = math.sqrt(draws * share * (1 - share))
        assert abs(counts[key] - draws * share) <= 3 * sigma, (key, counts)


def test_a_memory_that_holds_less_takes_over_what_came_last() -> None:
    memory = replay(REWARDS)
    memory.draw(3, version=1)
    smaller = replay({}, capacity=2)
    smaller.load_state_dict(memory.state_dict())
    assert smaller.keys == ("b", "c") and smaller.get("a") is None
    assert [group.uses for group in smaller.draw(1, version=1)] == [3]


def test_the_second_of_two_draws_goes_by_the_weights_that_are_left() -> None:
    weights, draws = {"a": 3.0, "b": 1.0, "c": 0.5}, 4000
    memory = replay(weights, priority_share=1.0, seed=1)
    pairs = Counter(tuple(g.key for g in memory.draw(2, version=1)) for _ in range(draws))
    share = 3 / 4.5 * 1 / 1.5  # a first, and then b among b and c
    assert abs(pairs["a", "b"] - draws * share) <= 3 * math.sqrt(draws * share * (1 - share))


def test_draws_in_order_take_the_least_used_and_of_these_the_oldest() -> None:
    memory = replay(REWARDS, priority_share=0.0)
    order = [[group.key for group in memory.draw(2, version=1)] for _ in range(3)]
    assert order == [["a", "b"], ["c", "a"], ["b", "c"]]


def test_a_mix_draws_its_share_by_weight_and_the_rest_in_order() -> None:
    draws, share = 3000, 0.25
    by_weight = 0
    for seed in range(draws):
        memory = replay({"a": 0.0, "b": 1.0, "c": 0.0}, priority_share=share, seed=seed)
        (group,) = memory.draw(1, version=1)
        assert group.key in ("a", "b")
        by_weight += group.key == "b"
    assert abs(by_weight - draws * share) <= 3 * math.sqrt(draws * share * (1 - share))


def test_what_the_weights_cannot_give_is_filled_up_in_order() -> None:
    memory = replay({"a": 0.0, "b": 0.0, "c": 1.0, "d": 0.0}, capacity=4, priority_share=1.0)
    assert [group.key for group in memory.draw(3, version=1)] == ["c", "a", "b"]
    assert [group.key for group in memory.draw(2, version=1)] == ["c", "d"]


def test_a_replayed_group_says_how_often_it_is_used_and_which_weights_sampled_it() -> None:
    memory = replay({"a": 1.0}, version=7)
    uses = [(group.uses, group.version, group.rows) for _ in range(2) for group in memory.draw(1, version=9)]
    assert uses == [(2, 7, "A"), (3, 7, "A")]


def test_what_is_too_old_is_dropped_and_not_drawn() -> None:
    memory: GroupReplay[str] = GroupReplay(3, max_lag=2)
    for version in (1, 2, 3):
        memory.add(str(version), version=version, weight=1.0, rows="")
    assert sorted(group.key for group in memory.draw(3, version=4)) == ["2", "3"]
    assert memory.keys == ("2", "3")
    assert [group.key for group in memory.drop_stale(5)] == ["2"]


@given(
    weights=st.lists(st.floats(0, 10), max_size=8),
    capacity=st.integers(1, 6),
    count=st.integers(0, 10),
    share=st.floats(0, 1),
)
def test_no_more_than_there_are_are_drawn_and_none_twice(
    weights: list[float], capacity: int, count: int, share: float
) -> None:
    memory = replay({str(i): w for i, w in enumerate(weights)}, capacity=capacity, priority_share=share)
    assert memory.keys == tuple(map(str, range(len(weights))))[-capacity:]
    drawn = [group.key for group in memory.draw(count, version=1)]
    assert len(drawn) == len(set(drawn)) == min(count, len(memory))


def test_a_row_is_replayable_with_its_behaviour_log_probs_and_its_version_only() -> None:
    columns, tag = ["responses", "rollout_log_probs"], {"min_global_steps": 0}
    check_replayable(columns, tag)
    with pytest.raises(DataError, match="rollout_log_probs"):
        check_replayable(["responses"], tag)
    with pytest.raises(DataError, match="min_global_steps"):
        check_replayable(columns, {"min_global_steps": None})
    with pytest.raises(DataError, match="old_log_probs"):
        check_replayable([*columns, "old_log_probs"], tag)


@pytest.mark.parametrize("weight", [-0.1, math.nan, math.inf])
def test_a_weight_that_is_no_chance_is_refused(weight: float) -> None:
    with pytest.raises(DataError, match="finite"):
        replay({"a": weight})


def test_a_group_is_taken_once() -> None:
    memory = replay({"a": 1.0})
    with pytest.raises(DataError, match="'a'"):
        memory.add("a", version=2, weight=1.0, rows="")


def test_what_webrl_replays_is_the_vector() -> None:
    assert is_worth_replaying(np.array([0.4, 0.5, 0.7, 0.95, 0.99])).tolist() == [False, False, True, True, False]
