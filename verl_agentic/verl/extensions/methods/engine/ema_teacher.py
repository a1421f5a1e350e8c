"""Patches verl: FSDP2 engines keep a moving average of the actor as teacher, with `algorithm.self_teacher: {tau:
0.05}`.

Wraps `infer_batch`, `lr_scheduler_step`, `save_checkpoint` and `load_checkpoint` of `FSDPEngineWithLMHead`.

A pass with `teacher_tau` uses the teacher, and returns a column `teacher_pass`. The teacher starts as a copy of the
actor at the first such pass. It is updated once after all mini-batches of a batch, and stays on the CPU if the engine
offloads its weights.
"""

from __future__ import annotations

import functools
from typing import Any, cast

import torch
from verl.utils import tensordict_utils as tu
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from verl_agentic.methods.losses.target_network import TargetNetwork
from verl_agentic.verl.extensions.methods.engine.weight_copy import (
    add_copy,
    copy_of,
    load_copy,
    save_copy,
    settled_shards,
    trained_shards,
)
from verl_agentic.verl.patching import wrap

TEACHER_TAU = "teacher_tau"
"""Key of a batch's `extra_info`."""
_FILES = "teacher"
_HAS_MOVED = "agentic_has_moved"


@wrap(FSDPEngineWithLMHead, "infer_batch")
def _infer_with_teacher(infer: Any, self: Any, data: Any, loss_function: Any = None) -> Any:
    tau = tu.get_non_tensor_data(data=data, key=TEACHER_TAU, default=None)
    if tau is None:
        return infer(self, data, loss_function)
    teacher = copy_of(self) or _add_teacher(self, tau=tau)
    with teacher.in_place_of(functools.partial(trained_shards, self.module)):
        outputs = infer(self, data, loss_function)
    columns = outputs["model_output"]
    columns["teacher_pass"] = torch.ones_like(columns["log_probs"])
    return outputs


def _add_teacher(engine: Any, *, tau: float) -> TargetNetwork:
    shards = trained_shards(engine.module)
    if engine.is_param_offload_enabled:
        shards = {name: shard.cpu() for name, shard in shards.items()}
    engine.optimizer.register_step_post_hook(lambda *_: setattr(engine, _HAS_MOVED, True))
    return add_copy(engine, shards, tau=tau)


@wrap(FSDPEngineWithLMHead, "lr_scheduler_step")
def _move_teacher(step: Any, self: Any) -> Any:
    """verl calls it once after the last mini-batch."""
    # False if verl skipped all updates because their norms were not finite.
    if getattr(self, _HAS_MOVED, False):
        setattr(self, _HAS_MOVED, False)
        cast("TargetNetwork", copy_of(self)).update(settled_shards(self))
    return step(self)


@wrap(FSDPEngineWithLMHead, "save_checkpoint")
def _save_with_teacher(save: Any, self: Any, local_path: Any, *args: Any, **kwargs: Any) -> None:
    save(self, local_path, *args, **kwargs)
    save_copy(self, local_path, name=_FILES)


@wrap(FSDPEngineWithLMHead, "load_checkpoint")
def _load_with_teacher(load: Any, self: Any, local_path: Any, *args: Any, **kwargs: Any) -> None:
    load(self, local_path, *args, **kwargs)
    load_copy(self, local_path, name=_FILES)
