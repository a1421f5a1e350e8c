"""Micro-batches for the tests of policy losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from verl_agentic.credit.policy_loss import LossBatch


@pytest.fixture(scope="session")
def loss_batch() -> Callable[..., LossBatch]:
    """Makes a micro-batch of nested lists; `log_prob` is a leaf with gradient, advantages may be one per row."""

    def make(
        *,
        log_prob: Any,
        mask: Any = None,
        old_log_prob: Any = None,
        advantages: Any = 0.0,
        **columns: Any,
    ) -> LossBatch:
        log_prob_BT = torch.as_tensor(log_prob, dtype=torch.float32).clone().requires_grad_()
        advantages_BT = torch.as_tensor(advantages, dtype=torch.float32)
        if advantages_BT.ndim == 1:
            advantages_BT = advantages_BT.unsqueeze(-1)
        return LossBatch(
            log_prob_BT=log_prob_BT,
            old_log_prob_BT=log_prob_BT.detach() if old_log_prob is None else torch.as_tensor(old_log_prob),
            advantages_BT=advantages_BT.expand_as(log_prob_BT),
            mask_BT=torch.ones_like(log_prob_BT, dtype=torch.bool) if mask is None else torch.tensor(mask).bool(),
            **{name: _column(value) for name, value in columns.items()},
        )

    return make


def _column(value: Any) -> Any:
    return torch.tensor(value) if isinstance(value, list) else value


@pytest.fixture(scope="session")
def masked_ppo_vector(loss_batch: Callable[..., LossBatch]) -> LossBatch:
    """V-PPO-MASK: two trajectories of five tokens, an observation at t=2, padding at the end of the second."""
    return loss_batch(
        log_prob=[[-1.0, -0.5, -2.0, -0.7, -1.2], [-0.3, -0.9, -0.4, -1.1, 0.0]],
        old_log_prob=[[-1.1, -0.9, -2.0, -0.6, -1.0], [-0.2, -1.5, -0.4, -1.0, 0.0]],
        mask=[[1, 1, 0, 1, 1], [1, 1, 0, 1, 0]],
        advantages=[1.0, -1.0],
    )
