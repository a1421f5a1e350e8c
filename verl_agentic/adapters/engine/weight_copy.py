"""A copy of the trained weights that follows them slowly (a target network), in an engine of verl's FSDP2.

Every rank keeps that of its own shard, and puts it into the engine's checkpoints.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from verl.utils.device import get_torch_device

from verl_agentic.algorithms.losses.target_network import TargetNetwork

Tensor = torch.Tensor
_COPY = "agentic_target"
_SAVED = "agentic_saved_target"
logger = logging.getLogger(__name__)


def copy_of(engine: Any) -> TargetNetwork | None:
    """Returns the copy that an engine has; None when it has none."""
    return getattr(engine, _COPY, None)


def trained_shards(module: torch.nn.Module) -> dict[str, Tensor]:
    """Returns this rank's memory of the weights that are trained; a change of it holds from the next pass on."""
    for part in module.modules():
        if isinstance(part, FSDPModule):
            # Gathered weights outlive a pass without gradients, and are then taken for the next one.
            part.reshard()
    weights = {name: weight.detach() for name, weight in module.named_parameters() if weight.requires_grad}
    return {name: weight.to_local() if isinstance(weight, DTensor) else weight for name, weight in weights.items()}


def settled_shards(engine: Any) -> dict[str, Tensor]:
    """Returns the same of an engine whose weights may be on their way to the CPU."""
    # verl 0.9 offloads weights without waiting for it.
    get_torch_device().synchronize()
    return trained_shards(engine.module)


def add_copy(engine: Any, weights: dict[str, Tensor], *, tau: float) -> TargetNetwork:
    """Gives an engine a copy of its weights.

    It starts as what a checkpoint that was loaded holds, else as the weights, and lies where they do.

    Args:
        engine: verl's, with an optimizer.
        weights: those of its module, as `trained_shards` returns them.
        tau: share of the way that it goes.
    """
    copy = TargetNetwork(weights, tau=tau)
    saved = getattr(engine, _SAVED, None)
    if saved is not None:
        _load(copy, saved, otherwise=weights)
    setattr(engine, _COPY, copy)
    return copy


def save_copy(engine: Any, local_path: Any, *, name: str) -> None:
    """Saves the copy of an engine that has saved a checkpoint, in files of this name."""
    copy = copy_of(engine)
    if copy is not None and local_path is not None and engine.checkpoint_manager.should_save_model:
        torch.save(copy.state_dict(), _path(engine, local_path, name))


def load_copy(engine: Any, local_path: Any, *, name: str) -> None:
    """Loads the copy of an engine that has loaded a checkpoint, at once or as soon as it has one."""
    if local_path is None or not engine.checkpoint_manager.should_load_model:
        return
    path, copy = _path(engine, local_path, name), copy_of(engine)
    setattr(engine, _SAVED, path)
    if copy is not None:
        _load(copy, path, otherwise=settled_shards(engine))


def _load(copy: TargetNetwork, path: Path, *, otherwise: dict[str, Tensor]) -> None:
    if path.is_file():
        copy.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    else:
        logger.warning("the checkpoint has no target network at %s; it starts as the weights that it has", path)
        copy.start_from(otherwise)


def _path(engine: Any, folder: Any, name: str) -> Path:
    manager = engine.checkpoint_manager
    return Path(folder) / f"{name}_world_size_{manager.world_size}_rank_{manager.rank}.pt"
