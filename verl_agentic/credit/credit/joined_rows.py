"""Sessions joined to one row each, for estimators that only handle rows.

Axes: N valid sessions, L sampled tokens of the longest one, M sampled tokens of all of them; else as in `credit`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from verl_agentic.credit.credit.batch import CreditBatch


@dataclass(frozen=True, kw_only=True)
class JoinedRows:
    """The sampled tokens of every valid session, one after the other, over all rows of its chain."""

    row_M: Tensor
    token_M: Tensor
    """`[M]` int64: where in the batch a token is."""
    place_M: Tensor
    rank_M: Tensor
    """`[M]` int64: where it is in the joined rows."""
    mask_NL: Tensor
    """`[N, L]` bool."""

    @classmethod
    def of(cls, batch: CreditBatch, rows_N: Tensor) -> JoinedRows:
        """Returns the joined rows of the sessions of some rows, in their order.

        Args:
            batch: without rows of sub-agents (`CreditBatch.chain`).
            rows_N: `[N]` int64: one valid row of every wanted session.
        """
        place_S = torch.full((batch.num_sessions,), -1, dtype=torch.int64, device=rows_N.device)
        place_S[batch.session_B[rows_N]] = torch.arange(len(rows_N), device=rows_N.device)
        place_B = torch.where(batch.is_chained_B, place_S[batch.session_B], -1)
        rows_R = (place_B >= 0).nonzero().squeeze(-1)
        rows_R = rows_R[batch.order_B[rows_R].argsort(stable=True)]
        rows_R = rows_R[place_B[rows_R].argsort(stable=True)]
        which_M, token_M = batch.mask_BT[rows_R].nonzero(as_tuple=True)
        row_M = rows_R[which_M]
        place_M, count_N = place_B[row_M], place_B[row_M].bincount(minlength=len(rows_N))
        rank_M = torch.arange(len(row_M), device=row_M.device) - (count_N.cumsum(0) - count_N)[place_M]
        longest = int(count_N.max()) if len(count_N) else 0
        mask_NL = torch.arange(longest, device=row_M.device) < count_N.unsqueeze(-1)
        return cls(row_M=row_M, token_M=token_M, place_M=place_M, rank_M=rank_M, mask_NL=mask_NL)

    def join(self, column_BT: Tensor) -> Tensor:
        """Returns `[N, L]`: a column of the batch; 0 behind the last token."""
        column_NL = torch.zeros(self.mask_NL.shape, dtype=column_BT.dtype, device=column_BT.device)
        column_NL[self.place_M, self.rank_M] = column_BT[self.row_M, self.token_M]
        return column_NL

    def split(self, column_NL: Tensor, *, like_BT: Tensor) -> Tensor:
        """Returns `[B, T]`: a column of the joined rows where its tokens are in the batch, 0 elsewhere."""
        column_BT = torch.zeros_like(like_BT)
        column_BT[self.row_M, self.token_M] = column_NL[self.place_M, self.rank_M].to(like_BT.dtype)
        return column_BT
