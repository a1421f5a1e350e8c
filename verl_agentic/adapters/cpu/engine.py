"""verl's own FSDP2 engines on a CPU: language model and value model, and a reference that is not pinned."""

from __future__ import annotations

import functools
import os

import torch
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp import transformer_impl

from verl_agentic.adapters.cpu.platform import is_chosen


def _register() -> None:
    register = functools.partial(EngineRegistry.register, backend=["fsdp", "fsdp2"], device="cpu")
    register("language_model")(transformer_impl.FSDPEngineWithLMHead)
    register("value_model")(transformer_impl.FSDPEngineWithValueHead)
    # A reference policy is offloaded to pinned memory, which needs an accelerator.
    policy = transformer_impl.CPUOffloadPolicy
    transformer_impl.CPUOffloadPolicy = lambda **kwargs: policy(**{**kwargs, "pin_memory": False})
    # Ray gives a worker OMP_NUM_THREADS=1 unless it asks for more cores. Training and generation take turns.
    torch.set_num_threads(len(os.sched_getaffinity(0)))


if is_chosen():
    _register()
