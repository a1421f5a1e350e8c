"""Columns of policy losses of single papers: the share of successes (VAPO), and mean log-probs (ROVER)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from verl.workers.utils.padding import response_from_nested

from verl_agentic.credit.losses.successes import positive_share
from verl_agentic.verl.trainer.trainer_part import TrainerPart, read_columns, read_outcomes, store_columns


class PositiveShare(TrainerPart):
    """Stores the share of a batch's sampled tokens that lie in successful rows."""

    def after_advantages(self, trainer: Any, batch: Any, columns: Mapping[str, Any]) -> Any:
        """Returns the batch with the share in every row."""
        if not self.loss_needs("positive_share_B"):
            return batch
        outcome_B = read_outcomes(columns, why=f"the loss {self.loss} imitates what did the task")
        masks = read_columns(batch, "response_mask")["response_mask"]
        num_tokens_B = torch.stack([row.sum() for row in masks.unbind()])
        share = positive_share(outcome_B, num_tokens_B)
        return store_columns(batch, {"credit_positive_share": torch.full_like(outcome_B, share)})


class MeanLogProbs(TrainerPart):
    """Stores the mean log-prob over the vocabulary at every token, before the updates."""

    def before_log_probs(self, batch: Any) -> None:
        """Asks the engine for the means."""
        batch.extra_info["calculate_mean_log_prob"] = self.loss_needs("mean_log_ratio_BT")

    def after_log_probs(self, batch: Any) -> Any:
        """Returns the batch with the means under a separate name."""
        if not self.loss_needs("mean_log_ratio_BT"):
            return batch
        stored = read_columns(batch, "mean_log_prob", "response_mask")
        means = response_from_nested(stored["mean_log_prob"], stored["response_mask"])
        return store_columns(batch, {"old_mean_log_prob": means})

    def before_update(self, batch: Any) -> None:
        """Asks the engine for the means of the updated policy."""
        self.before_log_probs(batch)
