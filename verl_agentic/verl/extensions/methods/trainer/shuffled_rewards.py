"""The estimator `grpo_shuffled`: GRPO on rewards that are shuffled inside each group.

A control experiment: groups keep their rewards, but siblings swap them. Any remaining gain does not come from the
reward.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage, register_adv_est


@register_adv_est("grpo_shuffled")
def compute_shuffled_advantage(
    token_level_rewards: Tensor, response_mask: Tensor, index: np.ndarray, **kwargs: Any
) -> tuple[Tensor, Tensor]:
    """Returns verl's GRPO advantages and returns, `[B, R]`, of shuffled rewards; the same ones for the same batch.

    Args:
        token_level_rewards: `[B, R] float`, 0 on padding.
        response_mask: `[B, R]`, 1 on trainable tokens.
        index: `[B]` group of every row.
        kwargs: passed on to verl's GRPO.
    """
    # Seeded by the lengths, so that it is repeatable and independent of the rewards.
    seed = zlib.crc32(response_mask.to(torch.uint8).cpu().numpy().tobytes())
    order = shuffled_in_groups(index.tolist(), np.random.default_rng(seed))
    shuffled = torch.zeros_like(token_level_rewards)
    shuffled[:, -1] = token_level_rewards.sum(dim=-1)[order]
    return compute_grpo_outcome_advantage(
        token_level_rewards=shuffled, response_mask=response_mask, index=index, **kwargs
    )


def shuffled_in_groups(groups: Sequence[Any], rng: np.random.Generator) -> list[int]:
    """Returns for every row the row whose reward it gets: a permutation within each group."""
    members: dict[Any, list[int]] = defaultdict(list)
    for row, group in enumerate(groups):
        members[group].append(row)
    order = [0] * len(groups)
    for rows in members.values():
        for row, other in zip(rows, rng.permutation(rows), strict=True):
            order[row] = int(other)
    return order
