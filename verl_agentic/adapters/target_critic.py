"""A target network beside the critic, with verl's FSDP2 engines: `critic.target: {tau: 0.1}`.

It lies where the engine's weights do, on the CPU where the engine offloads them, and where verl's trainer computes
values it gives `target_values` in a second pass.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import torch
from verl.utils.device import get_torch_device
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithValueHead

from verl_agentic.adapters.engine_copy import add_copy, copy_of, loading, saving, trained_shards

Tensor = torch.Tensor
# Written by `critic_config`, which no other adapter imports.
_TAU = "target_tau"
_FILES = "target"


def _initialize(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def initialize(self: Any) -> None:
        original(self)
        tau = getattr(self.engine_config, _TAU, None)
        if tau is not None:
            add_copy(self, _settled_shards(self), tau=tau)

    return initialize


def _settled_shards(engine: Any) -> dict[str, Tensor]:
    # verl 0.9 offloads weights without waiting for the copy.
    get_torch_device().synchronize()
    return trained_shards(engine.module)


def _infer_batch(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def infer(self: Any, data: Any, loss_function: Any = None) -> Any:
        outputs = original(self, data, loss_function)
        target = copy_of(self)
        if target is not None and loss_function is None:
            with target.in_place_of(functools.partial(trained_shards, self.module)):
                targets = original(self, data, loss_function)
            outputs["model_output"]["target_values"] = targets["model_output"]["values"]
        return outputs

    return infer


_engine = cast("Any", FSDPEngineWithValueHead)
_engine.initialize = _initialize(_engine.initialize)
_engine.infer_batch = _infer_batch(_engine.infer_batch)
_engine.save_checkpoint = saving(_engine.save_checkpoint, name=_FILES)
_engine.load_checkpoint = loading(_engine.load_checkpoint, _settled_shards, name=_FILES)
