"""A teacher that follows the actor slowly, with verl's FSDP2 engines: `algorithm.self_teacher: {tau: 0.05}`.

A pass that asks for `teacher_tau` is one of the teacher, and says so by a column `teacher_pass`. The teacher exists
from the first of them on, as the actor is then. It follows once after all mini-batches of a batch, and lies on the CPU
where the engine offloads its weights.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import torch
from verl.utils import tensordict_utils as tu
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from verl_agentic.adapters.engine.weight_copy import add_copy, copy_of, loading, saving, settled_shards, trained_shards
from verl_agentic.algorithms.losses.target_network import TargetNetwork

TEACHER_TAU = "teacher_tau"
"""Key of a batch's `extra_info`."""
_FILES = "teacher"
_HAS_MOVED = "agentic_has_moved"


def _infer_batch(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def infer(self: Any, data: Any, loss_function: Any = None) -> Any:
        tau = tu.get_non_tensor_data(data=data, key=TEACHER_TAU, default=None)
        if tau is None:
            return original(self, data, loss_function)
        teacher = copy_of(self) or _add_teacher(self, tau=tau)
        with teacher.in_place_of(functools.partial(trained_shards, self.module)):
            outputs = original(self, data, loss_function)
        columns = outputs["model_output"]
        columns["teacher_pass"] = torch.ones_like(columns["log_probs"])
        return outputs

    return infer


def _add_teacher(engine: Any, *, tau: float) -> TargetNetwork:
    shards = trained_shards(engine.module)
    if engine.is_param_offload_enabled:
        shards = {name: shard.cpu() for name, shard in shards.items()}
    engine.optimizer.register_step_post_hook(lambda *_: setattr(engine, _HAS_MOVED, True))
    return add_copy(engine, shards, tau=tau)


def _lr_scheduler_step(original: Callable[..., Any]) -> Callable[..., Any]:
    """verl calls it once after the last mini-batch."""

    @functools.wraps(original)
    def step(self: Any) -> Any:
        # False where verl has skipped all updates, for their norms were not finite.
        if getattr(self, _HAS_MOVED, False):
            setattr(self, _HAS_MOVED, False)
            cast("TargetNetwork", copy_of(self)).update(settled_shards(self))
        return original(self)

    return step


_engine = cast("Any", FSDPEngineWithLMHead)
_engine.infer_batch = _infer_batch(_engine.infer_batch)
_engine.save_checkpoint = saving(_engine.save_checkpoint, name=_FILES)
_engine.load_checkpoint = loading(_engine.load_checkpoint, name=_FILES)
_engine.lr_scheduler_step = _lr_scheduler_step(_engine.lr_scheduler_step)
