"""Factors of the learning rate of each step: `algorithm.length_lr` and `algorithm.linear_lr`."""

from __future__ import annotations

import math
from typing import Any

from verl_agentic.methods.losses.length_lr import length_lr_factor
from verl_agentic.methods.losses.linear_lr import linear_lr_factor
from verl_agentic.verl.extensions.methods.method_sections import length_lr, linear_lr
from verl_agentic.verl.trainer.trainer_part import TrainerPart, read_columns


class LearningRates(TrainerPart):
    """Lowers the learning rate for longer responses, and over the run."""

    def lr_factor(self, trainer: Any, batch: Any) -> float | None:
        """Returns the product of the factors of both sections."""
        factors = []
        if (by_length := length_lr(self.config)) is not None:
            factors.append(length_lr_factor(mean_length(batch), reference_length=by_length.reference_tokens))
        if (linear := linear_lr(self.config)) is not None:
            step, total = trainer.global_steps, trainer.total_training_steps
            factors.append(linear_lr_factor(step, num_steps=total, min_ratio=linear.min_ratio))
        return math.prod(factors) if factors else None


def mean_length(batch: Any) -> float:
    """Returns the mean number of sampled tokens of rows with any."""
    masks = read_columns(batch, "response_mask")["response_mask"]
    lengths = [count for row in masks.unbind() if (count := int(row.sum()))]
    return sum(lengths) / max(len(lengths), 1)
