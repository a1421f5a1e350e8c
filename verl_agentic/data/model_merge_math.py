"""Merging of models that were trained from one base, tensor by tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class ActiveCounts:
    """Numbers of coordinates that each of M models changed."""

    shared_M: Tensor
    """`[M]` int64: another model changed them too."""
    unique_M: Tensor
    """`[M]` int64: no other model changed them."""

    def __add__(self, other: ActiveCounts) -> ActiveCounts:
        return ActiveCounts(shared_M=self.shared_M + other.shared_M, unique_M=self.unique_M + other.unique_M)

    def scales(self, rescale: float) -> list[float]:
        """Returns the factor of each model's unique updates: `1 + (rescale - 1) * min(1, shared / unique)`.

        A model whose updates are averaged a lot is diluted there, and its unique updates make up for it.
        """
        pairs = zip(self.shared_M.tolist(), self.unique_M.tolist(), strict=True)
        return [1.0 + (rescale - 1.0) * min(1.0, shared / max(1, unique)) for shared, unique in pairs]


def active_counts(base: Tensor, tuned: Sequence[Tensor], *, threshold: float) -> ActiveCounts:
    """Returns the counts of one tensor; a coordinate is active if it differs from the base by more than `threshold`."""
    is_active = (_compute_updates(base, tuned).abs() > threshold).flatten(1)
    is_shared = is_active.sum(dim=0) > 1
    return ActiveCounts(shared_M=(is_active & is_shared).sum(dim=1), unique_M=(is_active & ~is_shared).sum(dim=1))


def merge_ram(base: Tensor, tuned: Sequence[Tensor], *, threshold: float, scales: Sequence[float]) -> Tensor:
    """Returns the base with the updates of all models, of the base's type (Reinforced Agent Merging).

    Where several models are active, their mean update is added. Where one model is active, its update times its scale
    is added. Averages over all models would divide such an update by their number.

    Args:
        base: of any shape; computed in float32.
        tuned: the same tensor of each model.
        threshold: minimum size of an update; smaller ones are dropped.
        scales: factor of each model's unique updates, see `ActiveCounts.scales`; 1 is RAM, above is RAM+.

    Paper: https://arxiv.org/abs/2601.13572
    """
    updates = _compute_updates(base, tuned)
    is_active = updates.abs() > threshold
    updates = updates.masked_fill_(~is_active, 0.0)
    count = is_active.sum(dim=0)
    factor = torch.tensor(scales, dtype=torch.float32).reshape(-1, *[1] * base.ndim)
    unique = (updates * factor).sum(dim=0)
    merged = torch.where(count > 1, updates.sum(dim=0) / count.clamp(min=1), unique)
    return (base.float() + merged).to(base.dtype)


def merge_mean(base: Tensor, tuned: Sequence[Tensor]) -> Tensor:
    """Returns the base with the mean of all updates, of the base's type."""
    return (base.float() + _compute_updates(base, tuned).mean(dim=0)).to(base.dtype)


def _compute_updates(base: Tensor, tuned: Sequence[Tensor]) -> Tensor:
    return torch.stack([tensor.float() for tensor in tuned]) - base.float()
