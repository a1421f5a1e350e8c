"""Step estimators equal verl's group estimators where no step is shared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from turn_batches import turn_batch
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage, compute_rloo_outcome_advantage

from verl_agentic.credit.advantage import AdvantageType
from verl_agentic.credit.advantages.gigpo import gigpo
from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.methods.advantages.arpo import arpo
from verl_agentic.methods.advantages.per_use import per_use
from verl_agentic.methods.advantages.salt import salt
from verl_agentic.methods.advantages.turn_group import turn_group

ROWS, GROUPS = 24, [f"g{i % 5}" for i in range(24)]


def batch() -> CreditBatch:
    generator = torch.Generator().manual_seed(0)
    outcomes = torch.rand(ROWS, generator=generator).tolist()
    return turn_batch(
        [[0.0] * (i % 3) + [outcome] for i, outcome in enumerate(outcomes)],
        states=[[f"{i}/{k}" for k in range(i % 3 + 1)] for i in range(ROWS)],
        groups=GROUPS,
        shared_BT=torch.full((ROWS, 9), -1),
        uses_B=torch.ones(ROWS, dtype=torch.int64),
    )


def verl_grpo(data: CreditBatch, *, by_std: bool) -> torch.Tensor:
    return compute_grpo_outcome_advantage(
        token_level_rewards=data.rewards_BT,
        response_mask=data.mask_BT.float(),
        index=np.array(GROUPS),
        norm_adv_by_std_in_grpo=by_std,
    )[0]


@pytest.mark.parametrize(
    ("estimator", "options", "by_std"),
    [
        (salt, {}, True),
        (salt, {"base": "dr_grpo"}, False),
        (gigpo, {}, False),
        (gigpo, {"norm": "mean_std"}, True),
        (arpo, {}, True),
        (arpo, {"mode": "soft", "base": "dr_grpo"}, False),
        (per_use, {}, True),
    ],
    ids=lambda item: getattr(item, "name", str(item)),
)
def test_steps_that_nobody_shares_leave_grpo(estimator: AdvantageType, options: dict[str, Any], by_std: bool) -> None:
    data = batch()
    torch.testing.assert_close(estimator(data, **options).advantages_BT, verl_grpo(data, by_std=by_std))


def test_salt_on_rloo_and_first_turns_against_others_are_verls_rloo() -> None:
    data = batch()
    expected = compute_rloo_outcome_advantage(
        token_level_rewards=data.rewards_BT, response_mask=data.mask_BT.float(), index=np.array(GROUPS)
    )[0]
    torch.testing.assert_close(salt(data, base="rloo").advantages_BT, expected)
    torch.testing.assert_close(turn_group(data).advantages_BT[:, :3], expected[:, :3])
