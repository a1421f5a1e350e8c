from __future__ import annotations

import math

import pytest
import torch
from batches import make_batch

from verl_agentic.methods.advantages.retrace import retrace, retrace_targets, trace_weights

RATIOS = torch.tensor([[0.5, 2.0, 1.0]])
ALL, NOTHING = torch.ones(1, 3, dtype=torch.bool), torch.tensor([-1])


def test_weights_of_the_vector() -> None:
    assert trace_weights(RATIOS).tolist() == [[0.5, 1.0, 1.0]]
    assert trace_weights(RATIOS, lam=0.5).tolist() == [[0.25, 0.5, 0.5]]


def test_targets_by_hand() -> None:
    # D2 = 1 - 0.5 = 0.5; D1 = 0.9 * 0.6 - 0.4 + 0.9 * 1 * 0.5 = 0.59; D0 = 0.9 * 0.2 - 0.3 + 0.9 * c1 * 0.59.
    q, later = torch.tensor([[0.3, 0.4, 0.5]]), torch.tensor([[0.2, 0.6, 0.0]])
    weights = torch.tensor([[0.5, 0.25, 1.0]])
    given = retrace_targets(torch.tensor([[0.0, 0, 1]]), q, later, weights, ALL, next_B=NOTHING, gamma=0.9)
    d_0 = 0.9 * 0.2 - 0.3 + 0.9 * 0.25 * 0.59
    torch.testing.assert_close(given, torch.tensor([[0.3 + d_0, 0.4 + 0.59, 1.0]]))


def turns(old: list[float], values: list[float], **options):
    """Two turns of two tokens with an observation between them, which earn 1."""
    batch = make_batch(
        [1.0],
        mask=torch.tensor([[1, 1, 0, 1, 1]]),
        turn_ids_BT=torch.tensor([[0, 0, 0, 1, 1]]),
        values_BT=torch.tensor([values]),
        old_log_probs_BT=torch.tensor([old]),
        rollout_log_probs_BT=torch.zeros(1, 5),
    )
    return retrace(batch, **options)


VALUES = [0.1, 0.2, math.nan, 0.3, 0.4]


@pytest.mark.parametrize("lam", [1.0, 0.5])
def test_a_turns_ratio_is_the_product_of_its_tokens(lam: float) -> None:
    given = turns([0.0, math.log(0.8), math.nan, math.log(0.5), math.log(0.5)], VALUES, gamma=0.9, lam=lam)
    # Turn 1: D = 1 - 0.4, ratio 0.25. Turn 0: D = 0.9 * 0.3 - 0.2 + 0.9 * lam * 0.25 * 0.6, ratio 0.8.
    target_0 = 0.9 * 0.3 + 0.9 * lam * 0.25 * 0.6
    a_0, a_1 = target_0 - 0.1, 1.0 - 0.3
    torch.testing.assert_close(given.advantages_BT, torch.tensor([[a_0, a_0, 0, a_1, a_1]]))
    expected = [0.1 + 0.8 * a_0, target_0, 0, 0.3 + 0.25 * a_1, 1.0]
    torch.testing.assert_close(given.returns_BT, torch.tensor([expected]))


def test_v_moves_to_its_target_at_most_all_the_way() -> None:
    given = turns([math.log(2.0), math.log(2.0), 0.0, 0.0, 0.0], VALUES)
    assert float(given.returns_BT[0, 0]) == pytest.approx(float(given.returns_BT[0, 1]))


def test_on_policy_and_lambda_1_it_is_the_return_where_q_is_v_of_the_next() -> None:
    # Q of turn 0 equals gamma * V of turn 1: all that is left over is the last error.
    given = turns([0.0] * 5, [0.1, 0.5 * 0.3, math.nan, 0.3, 0.4], gamma=0.5)
    torch.testing.assert_close(given.returns_BT[0, [1, 4]], torch.tensor([0.15 + 0.5 * 0.6, 1.0]))


def test_turns_that_the_policy_would_not_take_again_teach_the_earlier_ones_nothing() -> None:
    forgotten = turns([0.0, 0.0, 0.0, -200.0, 0.0], VALUES, gamma=0.9)
    assert float(forgotten.returns_BT[0, 1]) == pytest.approx(0.9 * 0.3)
