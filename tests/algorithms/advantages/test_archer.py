from __future__ import annotations

import math

import torch
from batches import make_batch

from verl_agentic.methods.advantages.archer import archer, q_targets

OTHER = 7.0


def test_vector() -> None:
    next_value, go_on, over = torch.tensor(0.7), torch.tensor(False), torch.tensor(True)
    torch.testing.assert_close(q_targets(torch.tensor(0.0), next_value, go_on), torch.tensor(0.63))
    torch.testing.assert_close(q_targets(torch.tensor(1.0), torch.tensor(math.nan), over), torch.tensor(1.0))
    # A = Q - V = 0.63 - 0.5, and V's target is Q.
    batch = make_batch(
        [0.0], tokens=2, turn_ids_BT=torch.zeros(1, 2, dtype=torch.int64), values_BT=torch.tensor([[0.5, 0.63]])
    )
    given = archer(batch)
    torch.testing.assert_close(given.advantages_BT, torch.full((1, 2), 0.13))
    torch.testing.assert_close(given.returns_BT, torch.tensor([[0.63, 0.0]]))


def test_q_learns_from_the_next_turns_v_and_v_from_q_and_nothing_else_learns() -> None:
    # Turns of three, one and two tokens: V 0.1, Q 0.2; Q and V 0.5; V 0.3, Q 0.9.
    mask = torch.tensor([[1, 1, 1, 0, 1, 0, 1, 1]])
    ids = torch.tensor([[0, 0, 0, 0, 1, 1, 2, 2]])
    values = torch.tensor([[0.1, OTHER, 0.2, math.nan, 0.5, math.nan, 0.3, 0.9]])
    given = archer(make_batch([1.0], mask=mask, turn_ids_BT=ids, values_BT=values))
    torch.testing.assert_close(given.advantages_BT, torch.tensor([[0.1, 0.1, 0.1, 0, 0, 0, 0.6, 0.6]]))
    expected = [0.2, OTHER, 0.9 * 0.5, 0, 0.9 * 0.3, 0, 0.9, 1.0]
    torch.testing.assert_close(given.returns_BT, torch.tensor([expected]))


def test_the_next_turn_may_be_in_the_next_row() -> None:
    batch = make_batch(
        [0.0, 1.0],
        sessions=["a", "a"],
        order=[0, 1],
        tokens=2,
        turn_ids_BT=torch.tensor([[0, 0], [1, 1]]),
        values_BT=torch.tensor([[0.1, 0.2], [0.4, 0.5]]),
    )
    torch.testing.assert_close(archer(batch).returns_BT, torch.tensor([[0.2, 0.9 * 0.4], [0.5, 1.0]]))


def test_targets_are_of_the_target_network_and_advantages_of_the_critic() -> None:
    # Turns of two, one and two tokens; the target network's V and Q lie 0.1 lower.
    mask = torch.tensor([[1, 1, 0, 1, 1, 1]])
    ids = torch.tensor([[0, 0, 0, 1, 2, 2]])
    values = torch.tensor([[0.1, 0.2, math.nan, 0.5, 0.3, 0.9]])
    batch = make_batch([1.0], mask=mask, turn_ids_BT=ids, values_BT=values, target_values_BT=values - 0.1)
    given = archer(batch)
    torch.testing.assert_close(given.advantages_BT, torch.tensor([[0.1, 0.1, 0, 0, 0.6, 0.6]]))
    expected = [0.1, 0.9 * 0.4, 0, 0.9 * 0.2, 0.8, 1.0]
    torch.testing.assert_close(given.returns_BT, torch.tensor([expected]))
    assert math.isclose(given.metrics["credit/target_gap"], 0.1, rel_tol=1e-5)
    without = archer(make_batch([1.0], mask=mask, turn_ids_BT=ids, values_BT=values))
    assert "credit/target_gap" not in without.metrics
