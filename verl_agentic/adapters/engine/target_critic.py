"""A target network beside the critic, with verl's FSDP2 engines: `critic.target: {tau: 0.1}`.

It follows after every update that the optimizer makes, and lies where the engine's weights do, on the CPU where the
engine offloads them. Where verl's trainer computes values, it gives `target_values` in a second pass.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithValueHead

from verl_agentic.adapters.engine.weight_copy import add_copy, copy_of, loading, saving, settled_shards, trained_shards

# Written by `critic_config`, which no other adapter imports.
_TAU = "target_tau"
_FILES = "target"


def _initialize(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def initialize(self: Any) -> None:
        original(self)
        tau = getattr(self.engine_config, _TAU, None)
        if tau is not None:
            target = add_copy(self, settled_shards(self), tau=tau)
            # verl skips updates of a non-finite norm.
            self.optimizer.register_step_post_hook(lambda *_: target.update(trained_shards(self.module)))

    return initialize


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
_engine.load_checkpoint = loading(_engine.load_checkpoint, name=_FILES)
