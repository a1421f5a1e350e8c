"""Group estimators beside verl's own functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from batches import make_batch, on_last_token, per_row
from verl.trainer.config.algorithm import AlgoConfig
from verl.trainer.ppo import core_algos
from verl.workers.config import ActorConfig

from verl_agentic.credit.advantage import load_advantage

PAIRS: dict[str, tuple[dict[str, Any], Callable[..., Any], dict[str, Any]]] = {
    "safe_grpo": ({}, core_algos.compute_grpo_outcome_advantage, {}),
    "safe_grpo, vectorized": ({}, core_algos.compute_grpo_vectorized_outcome_advantage, {}),
    "dr_grpo": ({}, core_algos.compute_grpo_outcome_advantage, {"norm_adv_by_std_in_grpo": False}),
    "safe_rloo": ({}, core_algos.compute_rloo_outcome_advantage, {}),
    "safe_rloo, vectorized": ({}, core_algos.compute_rloo_vectorized_outcome_advantage, {}),
    "safe_passk": ({}, core_algos.compute_grpo_passk_outcome_advantage, {"config": AlgoConfig()}),
    "safe_passk, plain": (
        {"normalize": False},
        core_algos.compute_grpo_passk_outcome_advantage,
        {"config": AlgoConfig(norm_adv_by_std_in_grpo=False)},
    ),
}


def drawn(*, groups: int, size: int, tokens: int = 5) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Returns rewards, mask and uids of sessions of one row with a reward on the last sampled token."""
    generator = torch.Generator().manual_seed(groups)
    mask = torch.randint(0, 2, (groups * size, tokens), generator=generator)
    mask[:, 0] = 1
    rewards = on_last_token(torch.randn(groups * size, generator=generator).tolist(), mask)
    uids = np.array([f"prompt {row % groups}" for row in range(groups * size)], dtype=object)
    return rewards, mask, uids


def ours(name: str, rewards: torch.Tensor, mask: torch.Tensor, uids: np.ndarray, *, options: Any = None, **known: Any):
    outcomes = rewards.sum(dim=1).tolist()
    batch = make_batch(outcomes, mask=mask, groups=list(uids), **known)
    return load_advantage(name)(batch, **(options or {})).advantages_BT


@pytest.mark.parametrize("case", PAIRS)
@pytest.mark.parametrize("size", [2, 8])
def test_on_whole_groups_of_one_row_per_session_the_numbers_are_verls(case, size) -> None:
    rewards, mask, uids = drawn(groups=4, size=size)
    options, function, keywords = PAIRS[case]
    verls, _ = function(rewards.clone(), mask, index=uids, **keywords)
    torch.testing.assert_close(ours(case.split(",")[0], rewards, mask, uids, options=options), verls)


def test_a_group_of_one_may_have_verls_bare_reward() -> None:
    rewards, mask, uids = drawn(groups=3, size=1)
    verls, _ = core_algos.compute_grpo_outcome_advantage(rewards.clone(), mask, index=uids)
    torch.testing.assert_close(ours("safe_grpo", rewards, mask, uids, options={"singleton": "raw"}), verls)


def test_remax_is_verls_where_rewards_lie_on_the_last_token() -> None:
    rewards, mask, uids = drawn(groups=4, size=2)
    # verl credits tokens with the rewards after them: with all tokens sampled, all are before the last.
    mask = torch.ones_like(mask)
    rewards = on_last_token(rewards.sum(dim=1).tolist(), mask)
    baseline_B = torch.linspace(0, 1, len(mask))
    verls, _ = core_algos.compute_remax_outcome_advantage(rewards, baseline_B, mask)
    torch.testing.assert_close(ours("safe_remax", rewards, mask, uids, baseline_B=baseline_B), verls)


def test_gdpo_is_verls_when_all_sessions_are_equally_long() -> None:
    rewards, mask, uids = drawn(groups=3, size=4)
    mask = torch.ones_like(mask)
    generator = torch.Generator().manual_seed(1)
    parts = {name: torch.rand(len(mask), generator=generator) for name in ("acc", "format")}
    config = AlgoConfig(gdpo_reward_keys=["acc", "format"], gdpo_reward_weights=[1.0, 0.5])
    verls, _ = core_algos.compute_gdpo_outcome_advantage(
        rewards,
        mask,
        index=uids,
        config=config,
        non_tensor_batch={name: part.numpy() for name, part in parts.items()},
        batch={"prompts": torch.zeros(len(mask), 0), "attention_mask": mask},
    )
    options = {"keys": ["acc", "format"], "weights": [1.0, 0.5]}
    given = ours("safe_gdpo", rewards, mask, uids, parts=parts, options=options)
    # Whitening over 60 tokens or 12 sessions: n - 1 differs.
    torch.testing.assert_close(given * (11 / 12 * 60 / 59) ** -0.5, verls, rtol=1e-4, atol=1e-5)


def test_a_void_sibling_still_votes_in_verl() -> None:
    mask = torch.ones(4, 3).long()
    mask[1] = 0
    rewards, uids = on_last_token([1, 1, 0, 0], mask), np.array(["a"] * 4, dtype=object)
    verls, _ = core_algos.compute_grpo_outcome_advantage(rewards.clone(), mask, uids, norm_adv_by_std_in_grpo=False)
    assert per_row(verls, mask) == [0.5, 0.0, -0.5, -0.5]
    assert per_row(ours("dr_grpo", rewards, mask, uids), mask) == pytest.approx([2 / 3, 0.0, -1 / 3, -1 / 3])


def test_a_constant_group_pushes_in_verl() -> None:
    mask, uids = torch.ones(8, 1).long(), np.array(["a"] * 8, dtype=object)
    rewards = torch.full((8, 1), 0.6)
    verls, _ = core_algos.compute_grpo_outcome_advantage(rewards.clone(), mask, uids)
    assert per_row(verls, mask) == pytest.approx([0.056] * 8, abs=1e-3)
    assert per_row(ours("safe_grpo", rewards, mask, uids), mask) == [0.0] * 8


def test_without_a_signal_the_kl_term_still_pulls() -> None:
    mask, beta = torch.ones(4, 3).long(), 0.04
    advantages = ours("safe_grpo", on_last_token([1, 1, 1, 1], mask), mask, np.array(["a"] * 4, dtype=object))
    log_prob = torch.full((4, 3), -1.0, requires_grad=True)
    config = ActorConfig(strategy="fsdp", rollout_n=4, ppo_micro_batch_size_per_gpu=1)
    policy, _ = core_algos.compute_policy_loss_vanilla(log_prob.detach(), log_prob, advantages, mask, config=config)
    k3 = core_algos.kl_penalty(log_prob, torch.full((4, 3), -1.5), "k3").mean()
    total = policy + beta * k3
    total.backward()
    # k3 at log-ratio -0.5: exp(-0.5) + 0.5 - 1
    assert policy.item() == 0.0 and total.item() == pytest.approx(0.04 * 0.106531, rel=1e-4)
    assert log_prob.grad is not None and (log_prob.grad > 0).all()


def test_what_a_critic_learns_of_a_rare_late_reward_is_discounted_away() -> None:
    # Reward at t = T = 50, three of ten succeed: V(s_t) = 0.99^(50 - t) * 0.3 at t = 0, 25 and 49.
    mask = torch.ones(10, 51)
    rewards = on_last_token([1] * 3 + [0] * 7, mask.long())
    _, returns = core_algos.compute_gae_advantage_return(rewards, torch.zeros(10, 51), mask, gamma=0.99, lam=1.0)
    assert returns.mean(dim=0)[[0, 25, 49]].tolist() == pytest.approx([0.181502, 0.233346, 0.297], abs=1e-6)
