"""Steps that several sessions share."""

from __future__ import annotations

import pytest
import torch
from turn_batches import per_turn, turn_batch

from verl_agentic.base.errors import ConfigError
from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.methods.advantages.salt import salt

A = 0.866024
STATES = [["s0", "s1", "s2"], ["s0", "s1", "s2"], ["s0", "s1"], ["s0", "s6"]]
ACTIONS = [["a", "b", "c"], ["a", "b", "d"], ["a", "e"], ["x", "c"]]
REWARDS = [[0, 0, 1.0], [0, 0, 0], [0, 0], [0, 1.0]]


def graph(**options: object) -> CreditBatch:
    return turn_batch(REWARDS, **{"states": STATES, "actions": ACTIONS, **options})


def check(batch: CreditBatch, expected: list[list[float]], **options: object) -> None:
    for row, want in zip(per_turn(salt(batch, **options).advantages_BT, batch), expected, strict=True):
        assert row == pytest.approx(want, abs=2e-6)


def test_shared_steps_get_the_mean_of_those_that_share_them() -> None:
    check(graph(), [[-0.288675, 0.0, A], [-0.288675, 0.0, -A], [-0.288675, -A], [A, A]])


def test_the_end_is_like_no_state_and_the_same_for_all() -> None:
    # The last turns of the first two now do the same where they are; that of the fourth starts from another state.
    actions = [["a", "b", "c"], ["a", "b", "c"], ["a", "e"], ["x", "c"]]
    check(graph(actions=actions), [[-0.288675, 0.0, 0.0], [-0.288675, 0.0, 0.0], [-0.288675, -A], [A, A]])


def test_no_state_is_the_end() -> None:
    batch = turn_batch([[1.0], [0, 0]], states=[["s"], ["s", "t"]], actions=[["a"], ["a", "b"]])
    assert batch.steps is not None
    batch.steps.state_BK[1, 1] = 0  # the least key there is
    check(batch, [[0.5], [-0.5, -0.5]], base="dr_grpo")


def test_a_step_to_another_state_is_another_step() -> None:
    # The same state and action, with luck in between.
    batch = turn_batch([[0, 1.0], [0, 0]], states=[["s", "t"], ["s", "u"]], actions=[["a", "b"], ["a", "b"]])
    check(batch, [[0.5, 0.5], [-0.5, -0.5]], base="dr_grpo")


def test_without_shared_steps_it_is_the_base_to_the_bit() -> None:
    outcomes = [0.3, 0.1, 0.7]
    batch = turn_batch([[0, r] for r in outcomes], states=[["s", "t"]] * 3)  # nobody does what another does
    for base, std in (("grpo", torch.tensor(outcomes).std() + 1e-6), ("dr_grpo", 1.0), ("rloo", 2 / 3)):
        centred = torch.tensor(outcomes) - torch.tensor(outcomes).sum() / 3
        for row, want in zip(per_turn(salt(batch, base=base).advantages_BT, batch), centred / std, strict=True):
            assert row == pytest.approx([float(want)] * 2, rel=1e-5)
            assert row[0] == row[1]


def test_one_rollout_alone_gets_what_grpo_gives_it() -> None:
    batch = turn_batch([[0, 1.0]], states=[["s", "t"]])
    assert per_turn(salt(batch).advantages_BT, batch) == [[0.0, 0.0]]


def test_a_session_counts_once_for_a_step_it_takes_twice() -> None:
    # The first goes round in a circle (s -a-> t -b-> s -a-> t), the second takes s -a-> t once.
    batch = turn_batch(
        [[0, 0, 0, 1.0], [0, 0]],
        states=[["s", "t", "s", "t"], ["s", "t"]],
        actions=[["a", "b", "a", "x"], ["a", "y"]],
    )
    check(batch, [[0.0, 0.5, 0.0, 0.5], [0.0, -0.5]], base="dr_grpo")


def test_groups_share_nothing() -> None:
    batch = turn_batch(
        [[1.0], [0], [1.0], [0]],
        states=[["s"]] * 4,
        actions=[["a"], ["b"], ["b"], ["a"]],
        groups=["g", "g", "h", "h"],
    )
    check(batch, [[0.5], [-0.5], [0.5], [-0.5]], base="dr_grpo")


def test_history_asks_for_the_same_way_there() -> None:
    # Both come to t and do the same there; they came by different actions.
    batch = turn_batch([[0, 1.0], [0, 0]], states=[["s", "t"]] * 2, actions=[["a", "c"], ["b", "c"]])
    check(batch, [[0.5, 0.0], [-0.5, 0.0]], base="dr_grpo")
    check(batch, [[0.5, 0.5], [-0.5, -0.5]], base="dr_grpo", history=1)


def test_what_is_before_the_history_does_not_count() -> None:
    batch = turn_batch(
        [[0, 0, 1.0], [0, 0, 0]], states=[["s", "t", "u"]] * 2, actions=[["a", "c", "d"], ["b", "c", "d"]]
    )
    check(batch, [[0.5, 0.5, 0.0], [-0.5, -0.5, 0.0]], base="dr_grpo", history=1)
    check(batch, [[0.5, 0.5, 0.5], [-0.5, -0.5, -0.5]], base="dr_grpo", history=2)


def test_rows_of_a_session_go_on_from_each_other() -> None:
    whole = graph()
    rows = [[0, 0], [1.0], *REWARDS[1:]]
    split = turn_batch(
        rows,
        states=[STATES[0][:2], STATES[0][2:], *STATES[1:]],
        actions=[ACTIONS[0][:2], ACTIONS[0][2:], *ACTIONS[1:]],
        sessions=["T1", "T1", "T2", "T3", "T4"],
        first_turns=[0, 2, 0, 0, 0],
    )
    first, *others = per_turn(salt(whole).advantages_BT, whole)
    assert per_turn(salt(split).advantages_BT, split) == [first[:2], first[2:], *others]


def test_a_turn_without_a_step_gets_what_the_session_has() -> None:
    batch = turn_batch([[0, 1.0], [0, 0]], states=[["s", "t"]] * 2, actions=[["a", "b"]] * 2)
    check(batch, [[0.0, 0.0], [0.0, 0.0]], base="dr_grpo")
    assert batch.steps is not None
    batch.steps.state_BK[0, 1] = -1
    # Without its second step, what the first one led to is the end.
    check(batch, [[0.5, 0.5], [-0.5, -0.5]], base="dr_grpo")


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="history"):
        salt(graph(), history=-1)
    with pytest.raises(ConfigError, match="dr_grpo"):
        salt(graph(), base="gae")
