"""A learning rate that a batch scales: its number `lr_scale` multiplies the rate of the updates made with it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from verl.utils import tensordict_utils as tu
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine
from verl.workers.engine_workers import TrainingWorker

from verl_agentic.errors import ConfigError

_SCALE = "agentic_lr_scale"


def _train_mini_batch(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def train(self: Any, data: Any) -> Any:
        scale = tu.pop(data, key="lr_scale", default=1.0)
        if scale != 1.0 and not isinstance(self.engine, FSDPEngine):
            raise ConfigError(
                f"algorithm.length_lr works with FSDP engines, got {type(self.engine).__name__}; unset it"
            )
        setattr(self.engine, _SCALE, scale)
        return original(self, data)

    return train


def _optimizer_step(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def step(self: Any) -> Any:
        # The scheduler writes the rates anew after every step.
        rates = [group["lr"] for group in self.optimizer.param_groups]
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * getattr(self, _SCALE, 1.0)
        try:
            return original(self)
        finally:
            for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
                group["lr"] = rate

    return step


TrainingWorker.train_mini_batch = _train_mini_batch(TrainingWorker.train_mini_batch)
FSDPEngine.optimizer_step = _optimizer_step(FSDPEngine.optimizer_step)
