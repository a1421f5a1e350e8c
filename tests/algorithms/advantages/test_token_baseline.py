from __future__ import annotations

import math

import torch
from batches import make_batch

from verl_agentic.methods.advantages.token_baseline import score_norms, token_baseline


def test_norms_lie_within_a_factor_of_2_of_what_is_assumed_without_the_sum() -> None:
    logits = torch.randn(50, 7, generator=torch.Generator().manual_seed(0)) * 3
    pi = logits.softmax(dim=-1)
    # The gradient of the log-prob of token 0 with respect to the logits.
    exact = (torch.eye(7)[0] - pi).square().sum(dim=-1)
    torch.testing.assert_close(
        score_norms(pi[:, 0].log(), pi.square().sum(dim=-1)).float(), exact, atol=1e-6, rtol=1e-4
    )
    assumed = score_norms(pi[:, 0].log(), None)
    assert bool(((assumed <= exact + 1e-6) & (exact <= 2 * assumed + 1e-6)).all())


def test_by_hand() -> None:
    # pi 0.5 and 0.75, sums of squares 0.5 and 0.7: norms 0.5 and 0.2 at every token; W = 0.5, 1; 0.2, 0.4.
    pi = torch.tensor([[0.5, 0.5], [0.75, 0.75]])
    sums = torch.tensor([[0.5, 0.5], [0.7, 0.7]])
    batch = make_batch([1.0, 0.0], tokens=2, old_log_probs_BT=pi.log(), sum_pi_squared_BT=sums)
    baseline = 0.5 / 0.7
    given = token_baseline(batch)
    torch.testing.assert_close(given.advantages_BT, torch.tensor([[1 - baseline] * 2, [-baseline] * 2]))
    assert given.returns_BT.tolist() == [[1.0, 1.0], [0.0, 0.0]]
    # Without the sums, norms are 0.25 and 0.0625.
    baseline = 0.25 / 0.3125
    given = token_baseline(make_batch([1.0, 0.0], tokens=2, old_log_probs_BT=pi.log()))
    torch.testing.assert_close(given.advantages_BT, torch.tensor([[1 - baseline] * 2, [-baseline] * 2]))


def test_every_token_has_its_own_baseline() -> None:
    # W = 0.25, 0.25 of the one, 0.25, 1.25 of the other: baselines 0.5 and 0.25 / 1.5.
    log_probs = torch.tensor([[math.log(0.5), 0.0], [math.log(0.5), -100.0]])
    given = token_baseline(make_batch([1.0, 0.0], tokens=2, old_log_probs_BT=log_probs)).advantages_BT
    torch.testing.assert_close(given, torch.tensor([[0.5, 1 - 1 / 6], [-0.5, -1 / 6]]))


def test_where_no_token_had_any_noise_the_baseline_is_the_mean() -> None:
    given = token_baseline(make_batch([1.0, 0.0], tokens=2, old_log_probs_BT=torch.zeros(2, 2))).advantages_BT
    torch.testing.assert_close(given, torch.tensor([[0.5, 0.5], [-0.5, -0.5]]))


def test_tokens_without_a_counterpart_get_nothing_or_all() -> None:
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0]])
    log_probs = torch.full((3, 3), math.log(0.5))
    batch = make_batch([1.0, 1.0, 1.0], groups=[0, 0, 1], mask=mask, old_log_probs_BT=log_probs)
    assert token_baseline(batch).advantages_BT.tolist() == [[0.0] * 3] * 3
    assert token_baseline(batch, keep_alone=True).advantages_BT.tolist() == [[0, 1, 1], [0, 0, 0], [1, 1, 0]]


def test_tokens_are_compared_by_how_many_were_sampled_before() -> None:
    log_probs = torch.full((2, 4), math.log(0.5))
    mask = torch.tensor([[1, 0, 0, 1], [1, 1, 0, 0]])
    rewards = make_batch([1.0, 0.0], mask=mask, old_log_probs_BT=torch.where(mask.bool(), log_probs, math.nan))
    given = token_baseline(rewards).advantages_BT
    torch.testing.assert_close(given, torch.tensor([[0.5, 0, 0, 0.5], [-0.5, -0.5, 0, 0]]))
