"""More rollouts per update: the gradient estimate varies less."""

from __future__ import annotations

import pytest
import torch

from verl_agentic.credit.advantage import load_advantage
from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.credit.estimate import CreditSettings, estimate

GROUP_SIZE, NUM_BATCHES, CHANCE = 8, 600, 0.3


def gradients(num_prompts: int) -> torch.Tensor:
    """Returns the policy gradient of many batches, for a policy that takes the right one of two actions in 30 %."""
    generator = torch.Generator().manual_seed(num_prompts)
    groups = [f"g{row // GROUP_SIZE}" for row in range(num_prompts * GROUP_SIZE)]
    slopes = []
    for _ in range(NUM_BATCHES):
        is_right_B1 = torch.rand(len(groups), 1, generator=generator) < CHANCE
        batch = CreditBatch.of(rewards=is_right_B1.float(), mask=torch.ones(len(groups), 1), groups=groups)
        advantages_B1 = estimate(load_advantage("dr_grpo"), batch, CreditSettings()).advantages_BT
        slopes.append((advantages_B1 * (is_right_B1.float() - CHANCE)).mean())
    return torch.stack(slopes)


def test_twice_as_many_prompts_halve_the_variance_of_the_gradient() -> None:
    few, many = gradients(8), gradients(16)
    assert (many.var() / few.var()).item() == pytest.approx(0.5, rel=0.2)
    assert few.mean().item() == pytest.approx(many.mean().item(), rel=0.1)
