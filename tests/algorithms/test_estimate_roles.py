"""Advantages of episodes with two agents."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from verl_agentic.credit.advantage import load_advantage
from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.credit.estimate import CreditSettings, estimate

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


AGENTS = ("solver", "", "reviewer", "")


@pytest.mark.parametrize(("role", "rows"), [("solver", [0]), ("reviewer", [2]), ("agent", [1, 3]), ("nobody", [])])
def test_every_token_has_one_role_and_one_role_can_be_selected(role: str, rows: list[int]) -> None:
    batch = replace(two_agents(), agents=AGENTS)
    selected = batch.tokens_of(role)
    assert selected.any(dim=-1).nonzero().flatten().tolist() == rows
    assert (selected <= batch.mask_BT).all() and (selected.sum(dim=-1)[rows] == 2).all()
    shared = [batch.tokens_of(name).long() for name in ("solver", "reviewer", "agent")]
    assert (sum(shared) == batch.mask_BT.long()).all(), "each sampled token has exactly one role"
    found = estimate(load_advantage("dr_grpo"), batch, CreditSettings(roles=role))
    assert found.advantages_BT.any(dim=-1).nonzero().flatten().tolist() == rows
    assert found.metrics["credit/role_token_frac"] == len(rows) / 4


def test_an_episode_without_sub_agents_is_the_agents() -> None:
    batch = two_agents(is_side=None)
    plain = estimate(load_advantage("safe_grpo"), batch, CreditSettings())
    own = estimate(load_advantage("safe_grpo"), batch, CreditSettings(roles="agent"))
    torch.testing.assert_close(own.advantages_BT, plain.advantages_BT)
