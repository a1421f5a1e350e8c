"""verl's FSDP2 engines on a CPU: actor, reference and critic, with or without LoRA."""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import itertools
import os
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from verl.utils import tensordict_utils as tu
from verl.utils.fsdp_utils import merged_lora_context, normalize_peft_param_name
from verl.utils.model import convert_weight_keys
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine, FSDPEngineWithLMHead, FSDPEngineWithValueHead

from verl_agentic.base.errors import ConfigError
from verl_agentic.verl.engine.shared_prompts import can_share_prompts
from verl_agentic.verl.extensions.cpu.idle_rows import idle_rows
from verl_agentic.verl.extensions.cpu.platform import is_chosen
from verl_agentic.verl.extensions.cpu.similar_lengths import groups_of_similar_length

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_DEFERS = "use_no_sync_for_gradient_accumulation"
_SMALL_MODEL = 500_000_000
"""Parameters up to which page faults take a share of a step, and kept memory is small."""


class _OnCpu(FSDPEngine):
    """An FSDP2 engine without pinned memory, offloading and CUDA."""

    def __init__(self, model_config: Any, engine_config: Any, optimizer_config: Any, checkpoint_config: Any) -> None:
        """Builds nothing yet. Raises ConfigError if the strategy is FSDP1, which does not support CPU models."""
        if engine_config.strategy != "fsdp2":
            raise ConfigError(
                f"an engine on the platform cpu needs strategy=fsdp2, got {engine_config.strategy!r}; "
                "put agentic/cpu behind the recipe, or set actor.strategy, ref.strategy and critic.strategy"
            )
        if hasattr(engine_config, _DEFERS) and torch.distributed.get_world_size() == 1:  # since verl 0.9.1
            # To one rank, each reduction of gradients is a copy. The last micro-batch of a step reduces them all.
            engine_config = copy.copy(engine_config)  # with the attributes that patches have added
            object.__setattr__(engine_config, _DEFERS, True)
        super().__init__(model_config, engine_config, optimizer_config, checkpoint_config)
        # The weights are already on the CPU.
        self._is_offload_param = self._is_offload_optimizer = False

    def forward_backward_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Computes with all cores of this rank, because Ray and TransferQueue set one thread."""
        torch.set_num_threads(threads_of_a_rank())
        return super().forward_backward_batch(*args, **kwargs)

    def _build_fsdp_module(self, module: Any) -> Any:
        if sum(weight.numel() for weight in module.parameters()) <= _SMALL_MODEL:
            _keep_freed_memory()
        # verl 0.9 offloads every reference to pinned memory, which only an accelerator has.
        config = self.engine_config
        self.engine_config = dataclasses.replace(config, forward_only=False, offload_policy=False)
        try:
            return super()._build_fsdp_module(module)
        finally:
            self.engine_config = config

    def _merged_lora_per_tensor_param(self) -> Iterator[tuple[str, Tensor]]:
        # verl 0.9 sends merged weights in bfloat16, and the server's log-probs are then off by 1e-4 and more.
        with merged_lora_context(self.module, backup_adapters=True):
            weights = convert_weight_keys(normalize_peft_param_name(self.module.state_dict()), cast("Any", self.module))
            for name, weight in weights.items():
                full = weight.full_tensor() if isinstance(weight, DTensor) else weight
                yield name, full.detach().clone()  # the end of the context removes the adapters


class CpuEngineWithLMHead(_OnCpu, FSDPEngineWithLMHead):
    """Actor and reference. Rows of similar length, or of one prompt, share a forward pass."""

    def forward_step(self, micro_batch: Any, loss_function: Any, forward_only: bool) -> tuple[Tensor, dict[str, Any]]:
        """Returns loss and outputs of a whole micro-batch, whose rows passed through the model in groups."""
        groups = self._group_rows(micro_batch)
        idle = set() if forward_only or self.get_data_parallel_size() > 1 else idle_rows(micro_batch, loss_function)
        if len(groups) < 2 and not idle:
            return super().forward_step(micro_batch, loss_function, forward_only)
        parts = ([[row for row in group if (row in idle) == is_idle] for group in groups] for is_idle in (False, True))
        live, still = ([part for part in of_kind if part] for of_kind in parts)
        groups = [*live, *still]
        outputs: list[dict[str, Tensor]] = []

        def keep(*, model_output: dict[str, Tensor], data: Any, dp_group: Any) -> tuple[Tensor, dict[str, Any]]:
            outputs.append(model_output)
            return torch.tensor(1.0), {}

        for number, group in enumerate(groups):
            with torch.set_grad_enabled(torch.is_grad_enabled() and number < len(live)):
                super().forward_step(tu.index_select_tensor_dict(micro_batch, group), keep, forward_only)
        output = {name: _in_order(groups, [columns[name] for columns in outputs]) for name in outputs[0]}
        loss, metrics = torch.tensor(1.0), {}
        if loss_function is not None:
            loss, metrics = loss_function(
                model_output=output, data=micro_batch, dp_group=self.get_data_parallel_group()
            )
        detached = {name: value.detach() if torch.is_tensor(value) else value for name, value in output.items()}
        return loss, {"model_output": detached, "loss": loss.detach().item(), "metrics": metrics}

    def _group_rows(self, micro_batch: Any) -> list[list[int]]:
        """Returns one group if there is no padding, if ranks must pass equally often, or if a loss reads logits."""
        is_padded = not tu.get_non_tensor_data(data=micro_batch, key="use_remove_padding", default=True)
        reads_logits = tu.get_non_tensor_data(data=micro_batch, key="distillation_use_topk", default=False)
        if self.get_data_parallel_size() > 1 or not is_padded or reads_logits or can_share_prompts(self):
            return [list(range(len(micro_batch)))]
        return groups_of_similar_length(micro_batch["input_ids"].offsets().diff().tolist())


class CpuEngineWithValueHead(_OnCpu, FSDPEngineWithValueHead):
    """Critic."""


def _in_order(groups: list[list[int]], nested: list[Tensor]) -> Tensor:
    """Returns the rows of the groups' nested tensors in the order of the micro-batch."""
    rows = dict(zip(itertools.chain(*groups), itertools.chain(*(tensor.unbind() for tensor in nested)), strict=True))
    return torch.nested.as_nested_tensor([rows[number] for number in sorted(rows)], layout=torch.jagged)


def threads_of_a_rank() -> int:
    """Returns this machine's cores divided by its ranks."""
    ranks = int(os.environ.get("RAY_LOCAL_WORLD_SIZE") or os.environ.get("LOCAL_WORLD_SIZE") or 1)
    return max(1, len(os.sched_getaffinity(0)) // ranks)


def _keep_freed_memory() -> None:
    """Lets glibc keep up to 1 GiB of freed memory, so that the next step causes fewer page faults."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
            mallopt(parameter, 1 << 30)


if is_chosen():
    for _model_type, _engine in (("language_model", CpuEngineWithLMHead), ("value_model", CpuEngineWithValueHead)):
        EngineRegistry.register(_model_type, backend=["fsdp", "fsdp2"], device="cpu")(_engine)
