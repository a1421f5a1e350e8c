"""A learning rate that a batch scales: its number `lr_scale` multiplies the rate of the updates made with it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

from verl.utils import tensordict_utils as tu
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

_SCALE = "agentic_lr_scale"


def _train_batch(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def train_batch(self: Any, data: Any, loss_function: Any) -> Any:
        setattr(self, _SCALE, tu.get_non_tensor_data(data=data, key="lr_scale", default=1.0))
        return original(self, data, loss_function)

    return train_batch


def _optimizer_step(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def step(self: Any) -> Any:
        groups = self.optimizer.param_groups
        rates = [group["lr"] for group in groups]
        for group in groups:
            # Not in place: a rate may be a tensor.
            group["lr"] = group["lr"] * getattr(self, _SCALE, 1.0)
        try:
            return original(self)
        finally:
            for group, rate in zip(groups, rates, strict=True):
                group["lr"] = rate

    return step


_engine = cast("Any", FSDPEngine)
_engine.train_batch = _train_batch(_engine.train_batch)
_engine.optimizer_step = _optimizer_step(_engine.optimizer_step)
