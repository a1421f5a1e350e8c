"""A target network beside the critic, with verl's FSDP2 engines: `critic.target: {tau: 0.1}`.

Every rank keeps an exponentially moving copy of its shard of the critic's trained weights, on the CPU where the engine
offloads them. It follows after every update that the optimizer makes (verl skips those of a non-finite norm), lies in
the critic's checkpoint, and, where verl's trainer computes values, gives `target_values` in a second pass.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from verl.utils.device import get_torch_device
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithValueHead

from verl_agentic.algorithms.target_network import TargetNetwork

Tensor = torch.Tensor
# Written by `critic_config`, which no other adapter imports.
_TAU = "target_tau"
_TARGET = "agentic_target"
logger = logging.getLogger(__name__)


def target_of(engine: Any) -> TargetNetwork | None:
    """Returns the target network of an engine; None when it has none."""
    return getattr(engine, _TARGET, None)


def trained_shards(module: torch.nn.Module) -> dict[str, Tensor]:
    """Returns this rank's memory of the weights that are trained; a change of it holds from the next pass on."""
    for part in module.modules():
        if isinstance(part, FSDPModule):
            # Gathered weights outlive a pass without gradients, and are then taken for the next one.
            part.reshard()
    weights = {name: weight.detach() for name, weight in module.named_parameters() if weight.requires_grad}
    return {name: weight.to_local() if isinstance(weight, DTensor) else weight for name, weight in weights.items()}


def _initialize(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def initialize(self: Any) -> None:
        original(self)
        tau = getattr(self.engine_config, _TAU, None)
        if tau is None:
            return
        target = TargetNetwork(_settled_shards(self), tau=tau)
        setattr(self, _TARGET, target)
        self.optimizer.register_step_post_hook(lambda *_: target.update(trained_shards(self.module)))

    return initialize


def _settled_shards(engine: Any) -> dict[str, Tensor]:
    # verl 0.9 offloads weights without waiting for the copy.
    get_torch_device().synchronize()
    return trained_shards(engine.module)


def _infer_batch(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def infer(self: Any, data: Any, loss_function: Any = None) -> Any:
        outputs = original(self, data, loss_function)
        target = target_of(self)
        if target is not None and loss_function is None:
            with target.in_place_of(functools.partial(trained_shards, self.module)):
                targets = original(self, data, loss_function)
            outputs["model_output"]["target_values"] = targets["model_output"]["values"]
        return outputs

    return infer


def _save_checkpoint(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def save(self: Any, local_path: Any, *args: Any, **kwargs: Any) -> None:
        original(self, local_path, *args, **kwargs)
        target = target_of(self)
        if target is not None and local_path is not None and self.checkpoint_manager.should_save_model:
            torch.save(target.state_dict(), _path(self, local_path))

    return save


def _load_checkpoint(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load(self: Any, local_path: Any, *args: Any, **kwargs: Any) -> None:
        original(self, local_path, *args, **kwargs)
        target = target_of(self)
        if target is None or local_path is None or not self.checkpoint_manager.should_load_model:
            return
        path = _path(self, local_path)
        if path.is_file():
            target.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        else:
            logger.warning("the checkpoint has no target network at %s; it starts as the critic that it has", path)
            target.start_from(_settled_shards(self))

    return load


def _path(engine: Any, folder: Any) -> Path:
    manager = engine.checkpoint_manager
    return Path(folder) / f"target_world_size_{manager.world_size}_rank_{manager.rank}.pt"


_engine = cast("Any", FSDPEngineWithValueHead)
_engine.initialize = _initialize(_engine.initialize)
_engine.infer_batch = _infer_batch(_engine.infer_batch)
_engine.save_checkpoint = _save_checkpoint(_engine.save_checkpoint)
_engine.load_checkpoint = _load_checkpoint(_engine.load_checkpoint)
