"""Columns of policy losses of single papers: the share of successes (VAPO), and mean log-probs (ROVER)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from omegaconf import OmegaConf
from verl.workers.utils.padding import response_from_nested

from verl_agentic.base.errors import ConfigError
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

    def check(self) -> None:
        """Refuses engines and settings with which nothing computes the means."""
        if not self.loss_needs("mean_log_ratio_BT"):
            return
        strategy = self.config.actor_rollout_ref.actor.strategy
        if strategy not in ("fsdp", "fsdp2"):
            raise ConfigError(
                f"the loss {self.loss} works with actor.strategy fsdp and fsdp2, got {strategy!r}; unset it"
            )
        if OmegaConf.select(self.config, "algorithm.rollout_correction.bypass_mode"):
            raise ConfigError(
                f"the loss {self.loss} needs what the trainer computes with the log-probs of the old policy, got "
                "algorithm.rollout_correction.bypass_mode=true, which computes none; set it to false"
            )

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
