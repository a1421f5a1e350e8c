"""Advantages of episodes with two agents."""

from __future__ import annotations

import pytest
import torch

from verl_agentic.algorithms.advantage import load_advantage
from verl_agentic.algorithms.credit.batch import CreditBatch
from verl_agentic.algorithms.estimate import CreditSettings, estimate

IS_SIDE = torch.tensor([True, False, True, False])


def two_agents(*, is_side: torch.Tensor | None = IS_SIDE) -> CreditBatch:
    """Two sibling episodes; each has a row of its sub-agent, then its own."""
    rewards = torch.zeros(4, 3)
    rewards[1, 2] = 1.0
    return CreditBatch.of(rewards=rewards, mask=torch.tensor([[1, 0, 1]] * 4), groups=["u"] * 4,
                          sessions=["a", "a", "b", "b"], order=[0, 1, 0, 1], is_side_B=is_side)  # fmt: skip


@pytest.mark.parametrize("name", ["safe_grpo", "safe_rloo", "dr_grpo"])
@pytest.mark.parametrize(("roles", "trained"), [("agent", ~IS_SIDE), ("sub_agents", IS_SIDE)])
def test_an_advantage_stays_in_its_role(name: str, roles: str, trained: torch.Tensor) -> None:
    both = estimate(load_advantage(name), two_agents(), CreditSettings()).advantages_BT
    one = estimate(load_advantage(name), two_agents(), CreditSettings(roles=roles)).advantages_BT  # pyright: ignore
    assert not one[~trained].any()
    torch.testing.assert_close(one[trained], both[trained])
    assert both[trained].any() and both[~trained].any(), "by default both roles learn from the outcome"
    assert not one[:, 1].any(), "an observation has no role"


def test_an_episode_without_sub_agents_is_the_agents() -> None:
    batch = two_agents(is_side=None)
    plain = estimate(load_advantage("safe_grpo"), batch, CreditSettings())
    own = estimate(load_advantage("safe_grpo"), batch, CreditSettings(roles="agent"))
    torch.testing.assert_close(own.advantages_BT, plain.advantages_BT)
