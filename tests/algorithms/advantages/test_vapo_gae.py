from __future__ import annotations

import pytest
import torch
from batches import make_batch

from verl_agentic.credit.credit.gae import gae
from verl_agentic.methods.advantages.vapo_gae import length_adaptive_lambda, vapo_gae


def test_lambda_vector_and_where_the_formula_falls_below_0() -> None:
    lam = length_adaptive_lambda(torch.tensor([100.0, 1000.0, 10000.0]), alpha=0.05)
    torch.testing.assert_close(lam, torch.tensor([0.8, 0.98, 0.998]))
    assert length_adaptive_lambda(torch.tensor([0.0, 1.0, 20.0]), alpha=0.05).tolist() == [0.0, 0.0, 0.0]


def test_every_session_has_the_lambda_of_its_number_of_sampled_tokens() -> None:
    generator = torch.Generator().manual_seed(0)
    mask = torch.ones(2, 60, dtype=torch.int64)
    mask[1, 40:] = 0
    mask[0, 10:20] = 0
    values = torch.randn(2, 60, generator=generator)
    given = vapo_gae(make_batch([1.0, 0.5], mask=mask, values_BT=values), whiten=False)
    rewards, exists, nothing = torch.zeros(2, 60), mask.bool(), torch.tensor([-1])
    rewards[0, 59], rewards[1, 39] = 1.0, 0.5
    for b, lam in enumerate([1 - 1 / (0.05 * 50), 1 - 1 / (0.05 * 40)]):
        row = slice(b, b + 1)
        expected = gae(rewards[row], values[row], exists[row], next_B=nothing, gamma=1.0, lam=lam)
        torch.testing.assert_close(given.advantages_BT[row], expected, atol=1e-5, rtol=1e-5)


def test_the_critic_learns_what_was_earned() -> None:
    batch = make_batch([1.0], mask=torch.tensor([[1, 0, 1]]), values_BT=torch.tensor([[0.2, 9.0, 0.4]]))
    given = vapo_gae(batch, gamma=0.5, whiten=False)
    assert given.returns_BT.tolist() == [[0.5, 0.0, 1.0]]
    # Two tokens: lambda 0, so one-step errors.
    torch.testing.assert_close(given.advantages_BT, torch.tensor([[0.5 * 0.4 - 0.2, 0.0, 0.6]]))


def test_whitened_like_verls_gae() -> None:
    batch = make_batch([1.0, 0.0], values_BT=torch.rand(2, 3))
    white = vapo_gae(batch).advantages_BT
    assert float(white.mean()) == pytest.approx(0.0, abs=1e-6)
    assert float(white.std()) == pytest.approx(1.0, abs=1e-4)
