"""Patches verl: `lr_scale` of a batch scales the learning rate of its updates.

Wraps `train_batch` and `optimizer_step` of `FSDPEngine`.
"""

from __future__ import annotations

from typing import Any

from verl.utils import tensordict_utils as tu
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

from verl_agentic.verl.patching import wrap

_SCALE = "agentic_lr_scale"


@wrap(FSDPEngine, "train_batch")
def _read_scale(train: Any, self: Any, data: Any, loss_function: Any) -> Any:
    setattr(self, _SCALE, tu.get_non_tensor_data(data=data, key="lr_scale", default=1.0))
    return train(self, data, loss_function)


@wrap(FSDPEngine, "optimizer_step")
def _step_with_scale(step: Any, self: Any) -> Any:
    groups = self.optimizer.param_groups
    rates = [group["lr"] for group in groups]
    for group in groups:
        # Not in place, because a rate may be a tensor.
        group["lr"] = group["lr"] * getattr(self, _SCALE, 1.0)
    try:
        return step(self)
    finally:
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate
