"""A moving average of the trained weights (a target network) in verl's FSDP2 engines.

Every rank keeps its own shard and saves it in the engine's checkpoints.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from verl.utils.device import get_torch_device

from verl_agentic.methods.losses.target_network import TargetNetwork

_COPY = "agentic_target"
_SAVED = "agentic_saved_target"
logger = logging.getLogger(__name__)


def copy_of(engine: Any) -> TargetNetwork | None:
    """Returns the copy of an engine, or None."""
    return getattr(engine, _COPY, None)


def trained_shards(module: torch.nn.Module) -> dict[str, Tensor]:
    """Returns this rank's shards of the trained weights; changes take effect in the next pass."""
    for part in module.modules():
        if isinstance(part, FSDPModule):
            # Gathered weights survive a pass without gradients and would be reused by the next one.
            part.reshard()
    weights = {name: weight.detach() for name, weight in module.named_parameters() if weight.requires_grad}
    return {name: weight.to_local() if isinstance(weight, DTensor) else weight for name, weight in weights.items()}


def settled_shards(engine: Any) -> dict[str, Tensor]:
    """Returns the same for an engine whose weights may be moving to the CPU."""
    # verl 0.9 offloads weights without waiting for it.
    get_torch_device().synchronize()
    return trained_shards(engine.module)


def add_copy(engine: Any, weights: dict[str, Tensor], *, tau: float) -> TargetNetwork:
    """Gives an engine a copy of its weights.

    It starts from a loaded checkpoint, else from the weights, and stays on their device.

    Args:
        engine: verl's, with an optimizer.
        weights: as returned by `trained_shards`.
    """
    copy = TargetNetwork(weights, tau=tau)
    saved = getattr(engine, _SAVED, None)
    if saved is not None:
        _load_file(copy, saved, otherwise=weights)
    setattr(engine, _COPY, copy)
    return copy


def save_copy(engine: Any, local_path: Any, *, name: str) -> None:
    """Saves the copy of an engine after it saved a checkpoint, in files of this name."""
    copy = copy_of(engine)
    if copy is not None and local_path is not None and engine.checkpoint_manager.should_save_model:
        torch.save(copy.state_dict(), _build_path(engine, local_path, name))


def load_copy(engine: Any, local_path: Any, *, name: str) -> None:
    """Loads the copy of an engine after it loaded a checkpoint, at once or when the copy is made."""
    if local_path is None or not engine.checkpoint_manager.should_load_model:
        return
    path, copy = _build_path(engine, local_path, name), copy_of(engine)
    setattr(engine, _SAVED, path)
    if copy is not None:
        _load_file(copy, path, otherwise=settled_shards(engine))


def _load_file(copy: TargetNetwork, path: Path, *, otherwise: dict[str, Tensor]) -> None:
    if path.is_file():
        copy.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    else:
        logger.warning("the checkpoint has no target network at %s; it starts as the weights that it has", path)
        copy.start_from(otherwise)


def _build_path(engine: Any, folder: Any, name: str) -> Path:
    manager = engine.checkpoint_manager
    return Path(folder) / f"{name}_world_size_{manager.world_size}_rank_{manager.rank}.pt"
