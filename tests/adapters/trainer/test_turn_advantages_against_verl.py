"""Our recursions, whitening, token baseline and explained variance beside verl's own."""

from __future__ import annotations

import pytest
import torch
from batches import make_batch
from verl import DataProto
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.metric_utils import compute_data_metrics
from verl.utils import torch_functional as verl_F

from verl_agentic.credit.advantages.monte_carlo import monte_carlo
from verl_agentic.credit.advantages.turn_gae import turn_gae
from verl_agentic.credit.credit.explained_variance import explained_variance
from verl_agentic.credit.credit.gae import gae, whitened
from verl_agentic.methods.advantages.token_baseline import token_baseline

GENERATOR = torch.Generator().manual_seed(0)
MASK = (torch.rand(12, 20, generator=GENERATOR) < 0.6).long()
MASK[:, 0] = 1
REWARDS = torch.randn(12, 20, generator=GENERATOR) * MASK
VALUES = torch.randn(12, 20, generator=GENERATOR)
NOTHING = torch.full((12,), -1)


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.99, 0.95), (1.0, 0.9), (0.9, 0.0)])
def test_gae_is_verls_where_tokens_were_sampled(gamma: float, lam: float) -> None:
    theirs, their_returns = core_algos.compute_gae_advantage_return(REWARDS, VALUES, MASK.float(), gamma, lam)
    exists = MASK.bool()
    ours = gae(REWARDS, VALUES, exists, next_B=NOTHING, gamma=gamma, lam=lam)
    torch.testing.assert_close((ours + VALUES)[exists], their_returns[exists], atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(whitened(ours, exists)[exists], theirs[exists], atol=1e-5, rtol=1e-4)


def test_turns_of_one_token_are_verls_gae() -> None:
    ids = MASK.cumsum(dim=1)
    batch = make_batch([0.0] * 12, mask=MASK, turn_ids_BT=ids, values_BT=VALUES)
    batch.rewards_BT.copy_(REWARDS)
    theirs, their_returns = core_algos.compute_gae_advantage_return(REWARDS, VALUES, MASK.float(), 0.99, 0.95)
    ours, exists = turn_gae(batch), MASK.bool()
    torch.testing.assert_close(ours.advantages_BT[exists], theirs[exists], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(ours.returns_BT[exists], their_returns[exists], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("mask", "expected"), [([1, 1, 1, 0, 0, 0], 0.0), ([1, 1, 1, 0, 1, 1], 1.0)])
def test_verl_loses_a_reward_that_lies_on_an_observation_too(mask: list[int], expected: float) -> None:
    rewards, mask_BT = torch.tensor([[0.0, 0, 0, 0, 0, 1]]), torch.tensor([mask])
    _, theirs = core_algos.compute_gae_advantage_return(rewards, torch.zeros(1, 6), mask_BT, 1.0, 1.0)
    ours = gae(rewards, torch.zeros(1, 6), mask_BT.bool(), next_B=torch.tensor([-1]), gamma=1.0, lam=1.0)
    assert theirs.tolist() == [[expected] * 6]
    assert ours[mask_BT.bool()].tolist() == [expected] * sum(mask)


def test_whitening_is_verls() -> None:
    torch.testing.assert_close(whitened(VALUES, MASK.bool()), verl_F.masked_whiten(VALUES, MASK) * MASK)


def baselines(mask: torch.Tensor, name: str, **theirs_only: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns verl's advantages and ours, of groups of 4, 3, 2, 2 and 1."""
    groups = [0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 4]
    rewards = torch.zeros(mask.shape)
    last = torch.where(mask.bool(), torch.arange(mask.shape[1]), -1).amax(dim=1)
    rewards[torch.arange(12), last] = torch.linspace(-1, 2, 12)
    log_probs = -2 * torch.rand(mask.shape, generator=torch.Generator().manual_seed(1)) - 0.01
    sums = log_probs.exp().square() + 0.5 * (1 - log_probs.exp()).square()
    theirs, _ = getattr(core_algos, name)(
        token_level_rewards=rewards,
        response_mask=mask.float(),
        index=groups,
        old_log_probs=log_probs,
        sum_pi_squared=sums,
        **theirs_only,
    )
    batch = make_batch(
        torch.linspace(-1, 2, 12).tolist(), groups=groups, mask=mask, old_log_probs_BT=log_probs, sum_pi_squared_BT=sums
    )
    return theirs, token_baseline(batch, keep_alone=theirs_only["handle_zero_tail"]).advantages_BT


def test_token_baseline_is_verls_over_sampled_tokens_singletons_and_zero_tail_included() -> None:
    theirs, ours = baselines(MASK, "compute_multi_turn_optimal_token_baseline_advantage", handle_zero_tail=True)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
    assert bool((ours[11][MASK[11] == 1] == 2.0).all())


def test_token_baseline_is_verls_of_one_turn_singletons_and_zero_tail_included() -> None:
    lengths = torch.tensor([20, 15, 15, 3, 9, 9, 4, 12, 20, 1, 1, 6])
    mask = (torch.arange(20) < lengths.unsqueeze(-1)).long()
    theirs, ours = baselines(mask, "compute_optimal_token_baseline_advantage", handle_zero_tail=True)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
    # Row 0 is alone past token 15, row 8 past token 12.
    assert float(ours[0, 14]) != float(ours[0, 15]) == -1.0


def test_without_the_zero_tail_only_singletons_are_not_verls() -> None:
    theirs, ours = baselines(MASK, "compute_multi_turn_optimal_token_baseline_advantage", handle_zero_tail=False)
    torch.testing.assert_close(ours[:11], theirs[:11], atol=1e-5, rtol=1e-4)
    assert ours[11].tolist() == [0.0] * 20


def test_explained_variance_is_verls_where_returns_vary_a_lot() -> None:
    returns, values, mask = 100 * REWARDS, 90 * REWARDS + VALUES, MASK.bool()
    columns = {
        "token_level_scores": REWARDS,
        "token_level_rewards": REWARDS,
        "advantages": returns,
        "returns": returns,
        "values": values,
        "response_mask": MASK,
        "attention_mask": torch.cat([torch.ones(12, 1, dtype=torch.int64), MASK], dim=1),
        "prompts": torch.ones(12, 1, dtype=torch.int64),
        "responses": torch.ones(12, 20, dtype=torch.int64),
    }
    theirs = compute_data_metrics(DataProto.from_dict(tensors=columns))["critic/vf_explained_var"]
    assert explained_variance(values, returns, mask) == pytest.approx(theirs, abs=1e-5)


def test_monte_carlo_is_verls_gae_with_lambda_1_before_whitening() -> None:
    batch = make_batch([1.0] * 12, mask=MASK, values_BT=VALUES)
    ours, exists = monte_carlo(batch, gamma=0.9), MASK.bool()
    theirs, _ = core_algos.compute_gae_advantage_return(batch.rewards_BT, VALUES, MASK.float(), 0.9, 1.0)
    torch.testing.assert_close(whitened(ours.advantages_BT, exists)[exists], theirs[exists], atol=1e-5, rtol=1e-4)
