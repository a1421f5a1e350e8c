"""Patches verl: FSDP2 engines keep a target network of the critic, with `critic.target: {tau: 0.1}`.

Wraps `initialize`, `infer_batch`, `save_checkpoint` and `load_checkpoint` of `FSDPEngineWithValueHead`.

It is updated after every optimizer step. It is on the device of the engine's weights, or on the CPU if the engine
offloads them. When verl's trainer computes values, a second pass gives `target_values`.
"""

from __future__ import annotations

import functools
from typing import Any

from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithValueHead

from verl_agentic.verl.extensions.methods.engine.weight_copy import (
    add_copy,
    copy_of,
    load_copy,
    save_copy,
    settled_shards,
    trained_shards,
)
from verl_agentic.verl.patching import wrap

# Written by `critic_config`, which no other adapter imports.
_TAU = "target_tau"
_FILES = "target"


@wrap(FSDPEngineWithValueHead, "initialize")
def _initialize_with_target(initialize: Any, self: Any) -> None:
    initialize(self)
    tau = getattr(self.engine_config, _TAU, None)
    if tau is not None:
        target = add_copy(self, settled_shards(self), tau=tau)
        # verl skips updates of a non-finite norm.
        self.optimizer.register_step_post_hook(lambda *_: target.update(trained_shards(self.module)))


@wrap(FSDPEngineWithValueHead, "infer_batch")
def _infer_with_target(infer: Any, self: Any, data: Any, loss_function: Any = None) -> Any:
    outputs = infer(self, data, loss_function)
    target = copy_of(self)
    if target is not None and loss_function is None:
        with target.in_place_of(functools.partial(trained_shards, self.module)):
            targets = infer(self, data, loss_function)
        outputs["model_output"]["target_values"] = targets["model_output"]["values"]
    return outputs


@wrap(FSDPEngineWithValueHead, "save_checkpoint")
def _save_with_target(save: Any, self: Any, local_path: Any, *args: Any, **kwargs: Any) -> None:
    save(self, local_path, *args, **kwargs)
    save_copy(self, local_path, name=_FILES)


@wrap(FSDPEngineWithValueHead, "load_checkpoint")
def _load_with_target(load: Any, self: Any, local_path: Any, *args: Any, **kwargs: Any) -> None:
    load(self, local_path, *args, **kwargs)
    load_copy(self, local_path, name=_FILES)
