"""The control `grpo_shuffled`: every group keeps its rewards, and nobody keeps the one it earned."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage, get_adv_estimator_fn

from verl_agentic.verl.extensions.methods.trainer.shuffled_rewards import compute_shuffled_advantage, shuffled_in_groups

GROUPS = np.array(["a", "b", "a", "c", "b", "a", "b", "a", "a"], dtype=object)
B, R = len(GROUPS), 5


def batch(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns rewards that differ in every row, on the last token, and masks of different lengths."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, R + 1, B)
    mask, rewards = torch.zeros(B, R), torch.zeros(B, R)
    for row, length in enumerate(lengths):
        mask[row, :length] = 1
        rewards[row, length - 1] = rng.normal()
    return rewards, mask


def test_it_is_registered_under_its_name() -> None:
    assert get_adv_estimator_fn("grpo_shuffled") is compute_shuffled_advantage


def test_rows_get_the_rewards_of_their_own_group_each_exactly_once() -> None:
    order = shuffled_in_groups(GROUPS.tolist(), np.random.default_rng(0))
    assert sorted(order) == list(range(B))
    assert [GROUPS[other] for other in order] == GROUPS.tolist()


def test_each_groups_advantages_are_those_of_grpo_in_another_order_and_have_mean_zero() -> None:
    rewards, mask = batch(0)
    plain, _ = compute_grpo_outcome_advantage(rewards.clone(), mask, GROUPS)
    shuffled, returns = compute_shuffled_advantage(rewards.clone(), mask, GROUPS)
    assert torch.equal(shuffled, returns) and shuffled.shape == (B, R)
    assert torch.equal(shuffled * mask, shuffled), "padding must have no advantage"
    for group in set(GROUPS):
        rows = torch.tensor([row for row in range(B) if GROUPS[row] == group])
        # The first token is always trainable here, and GRPO gives all tokens of a row the same advantage.
        assert torch.allclose(shuffled[rows, 0].sort().values, plain[rows, 0].sort().values)
        if len(rows) > 1:
            assert shuffled[rows, 0].mean().item() == pytest.approx(0, abs=1e-6)


def test_the_same_batch_is_shuffled_the_same_way_and_batches_differ() -> None:
    rewards, mask = batch(0)
    once, twice = (compute_shuffled_advantage(rewards.clone(), mask, GROUPS)[0] for _ in range(2))
    assert torch.equal(once, twice)
    orders = set()
    for seed in range(8):
        _, mask = batch(seed)
        ranks = torch.arange(B, dtype=torch.float32)[:, None] * torch.eye(R)[0]
        shuffled, _ = compute_shuffled_advantage(ranks, mask, GROUPS)
        orders.add(tuple(shuffled[:, 0].tolist()))
    assert len(orders) >= 7


def test_who_earned_a_reward_says_nothing_about_who_gets_it() -> None:
    # 2,000 groups of 4 in which only the first row earned 1: each row must get it in a quarter of them.
    # Standard deviation of a share: sqrt(0.25 * 0.75 / 2000) = 0.0097.
    groups = np.repeat(np.arange(2_000), 4)
    order = np.array(shuffled_in_groups(groups.tolist(), np.random.default_rng(1))).reshape(-1, 4)
    shares = ((order % 4) == 0).mean(axis=0)
    assert shares == pytest.approx([0.25] * 4, abs=0.04)


def test_options_reach_verls_grpo() -> None:
    rewards, mask = batch(0)
    scaled, _ = compute_shuffled_advantage(rewards.clone(), mask, GROUPS, norm_adv_by_std_in_grpo=True)
    plain, _ = compute_shuffled_advantage(rewards.clone(), mask, GROUPS, norm_adv_by_std_in_grpo=False)
    assert not torch.allclose(scaled, plain)
