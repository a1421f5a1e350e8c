"""The turns of a batch as a decision process: states, rewards and successors over the rows of a session.

`values[t]` of verl's critic is the value of the state before token t (verl 0.9.1 shifts the critic's outputs left by
one token, `workers/utils/padding.py`). So the value of a turn's state, after the last observation, is that at the
turn's first sampled token. The value at its last sampled token (usually the end-of-turn token) is Q of state and turn.

Axes: B rows, T tokens, K turns of a row at most.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.credit.credit.gae import following_rows, trained_tokens, where_known
from verl_agentic.credit.credit.turn_tokens import Turns


@dataclass(frozen=True, kw_only=True)
class TurnStates:
    """The turns of valid rows."""

    turns: Turns
    first_BK: Tensor
    """`[B, K]` int64: position of the turn's first sampled token; 0 if there is no such turn."""
    rewards_BK: Tensor
    """`[B, K]` float: sums of rewards over the tokens of each turn."""
    next_B: Tensor
    """`[B]` int64: see `following_rows`."""

    @classmethod
    def of(cls, batch: CreditBatch) -> TurnStates:
        """Returns the turns of a batch whose turn ids are known."""
        assert batch.turn_ids_BT is not None
        trained_BT = trained_tokens(batch)
        turns = Turns.of(batch.turn_ids_BT, trained_BT)
        length = trained_BT.shape[1]
        positions_T = torch.arange(length, device=trained_BT.device)
        first_BK = torch.full_like(turns.last_BK, length).scatter_reduce(
            1, turns.place_BT, torch.where(trained_BT, positions_T, length), reduce="amin"
        )
        return cls(
            turns=turns,
            first_BK=torch.where(turns.exists_BK, first_BK, 0),
            rewards_BK=turns.sums(where_known(batch.rewards_BT, trained_BT)),
            next_B=following_rows(batch),
        )

    @property
    def exists_BK(self) -> Tensor:
        """`[B, K]` bool."""
        return self.turns.exists_BK

    def at_first(self, values_BT: Tensor) -> Tensor:
        """Returns `[B, K]` float32: values at the first sampled token of every turn; 0 if there is no such turn."""
        return where_known(values_BT.gather(1, self.first_BK), self.exists_BK)

    def at_last(self, values_BT: Tensor) -> Tensor:
        """Returns `[B, K]` float32: values at the last sampled token of every turn; 0 if there is no such turn."""
        return where_known(values_BT.gather(1, self.turns.last_BK), self.exists_BK)

    def sums(self, values_BT: Tensor) -> Tensor:
        """Returns `[B, K]` float32: sums over the sampled tokens of every turn."""
        return self.turns.sums(where_known(values_BT, self.turns.mask_BT))

    def to_tokens(self, values_BK: Tensor) -> Tensor:
        """Returns `[B, T]`: turn values on sampled tokens, 0 elsewhere."""
        return self.turns.to_tokens(values_BK)

    def is_first(self) -> Tensor:
        """Returns `[B, T]` bool: true on the first sampled token of every turn."""
        return self._is_at(self.first_BK)

    def is_last(self) -> Tensor:
        """Returns `[B, T]` bool: true on the last sampled token of every turn."""
        return self._is_at(self.turns.last_BK)

    def _is_at(self, places_BK: Tensor) -> Tensor:
        mask_BT = self.turns.mask_BT
        positions_T = torch.arange(mask_BT.shape[1], device=mask_BT.device)
        return mask_BT & (places_BK.gather(1, self.turns.place_BT) == positions_T)
