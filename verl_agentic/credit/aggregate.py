"""Masked reductions of tokens: B rows, T response tokens. Aggregating a loss over a batch is verl's `agg_loss`."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def masked(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Returns `[B, T]` float32: the values of sampled tokens, exactly 0 elsewhere.

    Unlike a product with the mask, this removes NaN and infinity, also from the gradient.
    """
    return torch.where(mask_BT, values_BT.float(), 0.0)


def row_sums(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Returns `[B]` float32: sums over the sampled tokens of every row."""
    return masked(values_BT, mask_BT).sum(dim=-1)


def row_means(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Returns `[B]` float32: means over the sampled tokens of every row; 0 for a row without any."""
    return row_sums(values_BT, mask_BT) / mask_BT.sum(dim=-1).clamp(min=1)


def token_mean(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Returns a scalar: the mean over all sampled tokens; 0 if there are none."""
    return masked(values_BT, mask_BT).sum() / mask_BT.sum().clamp(min=1)


def weights_of_mean_one(scores_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Returns `[B, T]` float32: scores over the mean score of their row, without gradient; 0 where the mask is 0.

    Each row has its own mean, so a row weighs the same in every micro-batch. A row of zero scores gets 1 everywhere.

    Args:
        scores_BT: `[B, T]` float, not negative.
    """
    scores_BT = masked(scores_BT.detach(), mask_BT)
    means_B1 = row_means(scores_BT, mask_BT).unsqueeze(-1)
    return torch.where(means_B1 > 0, scores_BT / means_B1, mask_BT.float())


def as_floats(scalars: Mapping[str, Tensor | float]) -> dict[str, float]:
    """Returns scalars as numbers. The host waits for the device once, however many tensors there are."""
    tensors = {name: scalar.detach().float() for name, scalar in scalars.items() if isinstance(scalar, Tensor)}
    values = iter(torch.stack(list(tensors.values())).tolist() if tensors else ())
    return {name: next(values) if name in tensors else float(scalar) for name, scalar in scalars.items()}
