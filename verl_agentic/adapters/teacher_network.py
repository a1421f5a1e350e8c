"""A teacher that follows the actor slowly, with verl's FSDP2 engines: `algorithm.self_teacher: {tau: 0.05}`.

A pass that asks for `teacher_tau` is one of the teacher. It exists from the first of them on, as the actor is then, and
lies on the CPU where the engine offloads its weights.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import torch
from verl.utils import tensordict_utils as tu
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from verl_agentic.adapters.engine_copy import add_copy, copy_of, loading, saving, trained_shards

Tensor = torch.Tensor
TEACHER_TAU = "teacher_tau"
"""Key of a batch's `extra_info`."""
_FILES = "teacher"


def _infer_batch(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def infer(self: Any, data: Any, loss_function: Any = None) -> Any:
        tau = tu.get_non_tensor_data(data=data, key=TEACHER_TAU, default=None)
        if tau is None:
            return original(self, data, loss_function)
        teacher = copy_of(self) or add_copy(self, _shards(self), tau=tau)
        with teacher.in_place_of(functools.partial(trained_shards, self.module)):
            return original(self, data, loss_function)

    return infer


def _shards(engine: Any) -> dict[str, Tensor]:
    shards = trained_shards(engine.module)
    return {name: shard.cpu() for name, shard in shards.items()} if engine.is_param_offload_enabled else shards


_engine = cast("Any", FSDPEngineWithLMHead)
_engine.infer_batch = _infer_batch(_engine.infer_batch)
_engine.save_checkpoint = saving(_engine.save_checkpoint, name=_FILES)
_engine.load_checkpoint = loading(_engine.load_checkpoint, _shards, name=_FILES)
