"""Turns of rows of tokens: B rows, T tokens, K turns of a row at most.

Turn k of a row is its k-th turn. Turn ids continue over the rows of a session.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Turns:
    """The turns of every row in which the policy sampled at least one token."""

    place_BT: Tensor
    """`[B, T]` int64: index of the token's turn in the row; undefined where the mask is 0."""
    mask_BT: Tensor
    """`[B, T]` bool: true on tokens that the policy sampled."""
    exists_BK: Tensor
    """`[B, K]` bool."""
    last_BK: Tensor
    """`[B, K]` int64: position of the turn's last sampled token; 0 if there is no such turn."""
    id_BK: Tensor
    """`[B, K]` int64: the turn's id; -1 if there is no such turn."""

    @classmethod
    def of(cls, turn_ids_BT: Tensor, mask_BT: Tensor) -> Turns:
        """Returns the turns of rows; turn ids must be 0 or more and not decrease along a row."""
        mask_BT = mask_BT.bool()
        num_ids = int(turn_ids_BT.max()) + 1 if turn_ids_BT.numel() else 1
        # Axis I: turn ids. There are few, so only three passes go over all tokens.
        counts_BI = torch.zeros((len(mask_BT), num_ids), dtype=torch.int32, device=mask_BT.device)
        has_BI = counts_BI.scatter_add_(1, turn_ids_BT, mask_BT.int()) > 0
        place_BI = (has_BI.long().cumsum(dim=1) - 1).clamp(min=0)
        place_BT = place_BI.gather(1, turn_ids_BT)
        num_turns = max(int(has_BI.sum(dim=1).max()), 1) if has_BI.numel() else 1
        nothing_BK = torch.full((len(mask_BT), num_turns), -1, dtype=torch.int64, device=mask_BT.device)
        ids_I = torch.arange(num_ids, device=mask_BT.device)
        id_BK = nothing_BK.scatter_reduce(1, place_BI, torch.where(has_BI, ids_I, -1), reduce="amax")
        positions_BT = torch.where(mask_BT, torch.arange(mask_BT.shape[1], device=mask_BT.device), -1)
        last_BK = nothing_BK.scatter_reduce(1, place_BT, positions_BT, reduce="amax")
        exists_BK = last_BK >= 0
        return cls(place_BT=place_BT, mask_BT=mask_BT, exists_BK=exists_BK, last_BK=last_BK.clamp(min=0), id_BK=id_BK)

    def sums(self, values_BT: Tensor) -> Tensor:
        """Returns `[B, K]` float: sums over the sampled tokens of every turn."""
        sums_BK = torch.zeros(self.exists_BK.shape, dtype=values_BT.dtype, device=values_BT.device)
        return sums_BK.scatter_add_(1, self.place_BT, values_BT * self.mask_BT)

    def at_last(self, values_BT: Tensor) -> Tensor:
        """Returns `[B, K]`: values at the last sampled token of every turn; 0 if there is no such turn."""
        return values_BT.gather(1, self.last_BK) * self.exists_BK

    def to_tokens(self, values_BK: Tensor) -> Tensor:
        """Returns `[B, T]`: turn values on sampled tokens, 0 elsewhere."""
        return values_BK.gather(1, self.place_BT) * self.mask_BT
