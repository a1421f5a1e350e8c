from __future__ import annotations

import math

import pytest
import torch
from batches import any_rows, make_batch
from hypothesis import given

from verl_agentic.base.trajectory import place_rewards
from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.methods.advantages.hierarchical import hierarchical


def episode(reached: list[int], outcome: float, *, steps: int = 100) -> list[float]:
    """Returns rewards of an episode of steps of one sampled token: 0.1 for every subgoal."""
    return place_rewards(
        outcome=outcome,
        turn_rewards=dict.fromkeys(reached, 0.1),
        turn_ids=list(range(steps)),
        response_mask=[1] * steps,
    )


def group(*rewards: list[float], **known) -> CreditBatch:
    """Returns a group of episodes of turns of one token each."""
    width = max(map(len, rewards))
    table = torch.tensor([row + [0.0] * (width - len(row)) for row in rewards])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rewards])
    ids = torch.arange(width).expand(len(rewards), -1)
    known = {"groups": [0] * len(rewards), "turn_ids_BT": ids, **known}
    return CreditBatch.of(rewards=table, mask=mask, **known)


def test_vector_subgoals_lie_where_they_were_reached_and_count_for_what_led_there() -> None:
    failed, solved = episode([18, 37, 55], 0.0), episode([18, 37, 55, 70, 90], 1.0)
    assert sum(failed) == pytest.approx(0.3)
    assert sum(solved) == pytest.approx(1.5)
    assert [t for t, r in enumerate(episode([18, 37, 55], 1.0)) if r] == [18, 37, 55, 99]
    # A sibling that reached nothing: the advantage is half of what was still to be earned.
    given = hierarchical(group(failed, episode([], 0.0))).advantages_BT
    for step, to_go in [(0, 0.3), (18, 0.3), (19, 0.2), (37, 0.2), (38, 0.1), (55, 0.1), (56, 0.0), (99, 0.0)]:
        assert given[:, step].tolist() == pytest.approx([to_go / 2, -to_go / 2], abs=1e-6)
    given = hierarchical(group(solved, episode([], 0.0))).advantages_BT
    assert given[:, 0].tolist() == pytest.approx([0.75, -0.75])
    assert given[:, 99].tolist() == pytest.approx([0.5, -0.5])


def test_turns_are_discounted_not_tokens() -> None:
    mask = torch.tensor([[1, 1, 0, 1, 1, 1]] * 2)
    ids = torch.tensor([[0, 0, 0, 1, 1, 1]] * 2)
    given = hierarchical(make_batch([1.0, 0.0], mask=mask, turn_ids_BT=ids), gamma=0.5).advantages_BT
    assert given[0].tolist() == [0.25, 0.25, 0.0, 0.5, 0.5, 0.5]


def test_going_on_for_longer_than_the_siblings_gains_nothing() -> None:
    both_solve = hierarchical(group([0.0, 1.0], [0.0, 0.0, 0.0, 1.0])).advantages_BT
    assert both_solve.tolist() == [[0.0] * 4] * 2
    # The last turn of two is 1, where the mean is 0.5; it stays.
    long_fails = hierarchical(group([0.0, 1.0], [0.0, 0.0, 0.0, 0.0])).advantages_BT
    assert long_fails.tolist() == [[0.5, 0.5, 0.0, 0.0], [-0.5, -0.5, -0.5, -0.5]]


def test_singletons_and_siblings_of_void_rows_get_nothing() -> None:
    assert hierarchical(group([0.0, 1.0])).advantages_BT.tolist() == [[0.0, 0.0]]
    lonely = group([0.0, 1.0], [math.nan, 1.0], [1.0, 1.0], groups=[0, 0, 1])
    assert hierarchical(lonely).advantages_BT.tolist() == [[0.0, 0.0]] * 3


@given(rows=any_rows(needs=["turn_ids_BT"], several_rows=False, dense=True))
def test_a_turn_that_all_sessions_of_a_group_have_sums_to_0(rows) -> None:
    batch = rows.batch()
    given_BT = hierarchical(batch).advantages_BT
    first_B = torch.where(batch.mask_BT, given_BT, -math.inf).gather(1, batch.mask_BT.int().argmax(dim=1, keepdim=True))
    first_B = torch.where(batch.valid_B, first_B.squeeze(1), 0.0)
    sums_G = torch.zeros(batch.num_groups).index_add(0, batch.group_B, first_B)
    torch.testing.assert_close(sums_G, torch.zeros_like(sums_G), atol=1e-5, rtol=0)
