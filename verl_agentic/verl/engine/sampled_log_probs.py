"""Patches verl: `model.fused_kernel_options.impl_backend=sampled` computes logits of trained tokens only, in pieces.

Wraps `prepare_model_inputs` and `prepare_model_outputs` of `FSDPEngineWithLMHead`. verl computes the logits of every
token of prompts and observations, too, and keeps several arrays `[tokens, vocabulary]`.

The work is done in the forward pass of the output layer, so that FSDP2 gathers and frees its weights as usual.
Log-probs and entropies of tokens outside the mask of the loss are 0. A model that changes its logits (soft caps, LoRA
on the output layer), and a pass that reads all of them (distillation, sums of squares, mean log-probs, top tokens),
computes all, as without the option.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from verl.utils import tensordict_utils as tu
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead, FSDPEngineWithValueHead

from verl_agentic.base.errors import ConfigError
from verl_agentic.credit.losses.token_log_probs import token_log_probs
from verl_agentic.verl.engine.shared_prompts import pack_rows, prompt_lengths
from verl_agentic.verl.patching import wrap

logger = logging.getLogger(__name__)
BACKEND = "sampled"
_PLACES = "trained_places"
_HEAD = "agentic_output_layer"
_READ_ALL_LOGITS = (
    "calculate_sum_pi_squared",
    "calculate_mean_log_prob",
    "calculate_top_tokens",
    "distillation_use_topk",
    "distillation_only",
)


class _Request(NamedTuple):
    """A request to the output layer for its next pass."""

    places_N: Tensor
    """Of the flattened hidden states."""
    args: Mapping[str, Any]
    """Of `prepare_model_inputs`; its target ids are read as late as verl reads them."""
    scale_N: Tensor
    with_entropy: bool


@wrap(FSDPEngineWithLMHead, "prepare_model_inputs")
def _ask_for_trained_tokens(prepare: Any, self: Any, micro_batch: Any) -> Any:
    if not is_chosen(self.model_config):
        return prepare(self, micro_batch)
    # verl's own passes over all logits are the ones without its kernels.
    tu.assign_non_tensor_data(micro_batch, "use_fused_kernels", False)
    inputs, args = prepare(self, micro_batch)
    if _reads_all_logits(self, micro_batch):
        if hasattr(head := self.module.get_output_embeddings(), "request"):
            head.request = None  # of a pass that failed
        return inputs, args
    if not hasattr(self, _HEAD):
        setattr(self, _HEAD, _changed_output_layer(self, inputs))
    if (head := getattr(self, _HEAD)) is None:
        return inputs, args
    rows_N, at_N = trained_places(micro_batch)
    places_N = micro_batch["input_ids"].offsets()[rows_N] + at_N
    args[_PLACES] = places_N
    is_one_row = "temperature_rmpad" in args
    temperature_N = args["temperature_rmpad"][places_N] if is_one_row else args["temperature"][rows_N]
    if (packed := pack_rows(self, micro_batch, inputs)) is not None:
        inputs, hidden_N = packed.inputs, packed.places(rows_N, at_N)
    else:
        hidden_N = places_N if is_one_row else rows_N * inputs["input_ids"].shape[1] + at_N
    head.request = _Request(
        hidden_N,
        args,
        1.0 / temperature_N.clamp(min=1e-8),
        bool(tu.get_non_tensor_data(data=micro_batch, key="calculate_entropy", default=False)),
    )
    return inputs, args


@wrap(FSDPEngineWithLMHead, "prepare_model_outputs")
def _spread_trained_tokens(
    prepare: Any, self: Any, output: Any, output_args: Any, micro_batch: Any, logits_processor_func: Any
) -> Any:
    if _PLACES not in output_args:
        return prepare(self, output, output_args, micro_batch, logits_processor_func)
    input_ids = micro_batch["input_ids"]
    names = ["log_probs"]
    if tu.get_non_tensor_data(data=micro_batch, key="calculate_entropy", default=False):
        names.append("entropy")
    outputs = {}
    for name, values_N in zip(names, output.logits, strict=False):
        values = values_N.new_zeros(len(input_ids.values())).index_put((output_args[_PLACES],), values_N)
        outputs[name] = torch.nested.nested_tensor_from_jagged(values, input_ids.offsets())
    return outputs


def is_chosen(model_config: Any) -> bool:
    """Returns whether a model's section chooses this."""
    options = model_config.fused_kernel_options or {}
    return bool(model_config.use_fused_kernels) and options.get("impl_backend") == BACKEND


def trained_places(micro_batch: Any) -> tuple[Tensor, Tensor]:
    """Returns row and place in the row, each `[N]`, of every token whose next one is in the mask of the loss.

    The mask is `response_mask`, `[B, R]` padded or nested, or else (SFT) `loss_mask`, nested, of whole rows.
    """
    mask = micro_batch["response_mask" if "response_mask" in micro_batch else "loss_mask"]
    if mask.is_nested:
        flat_N = mask.values().nonzero()[:, 0]
        rows_N = torch.searchsorted(mask.offsets(), flat_N, right=True) - 1
        at_N = flat_N - mask.offsets()[rows_N]
    else:
        rows_N, at_N = mask.nonzero().unbind(dim=-1)
    at_N = prompt_lengths(micro_batch)[rows_N] + at_N - 1
    is_predicted_N = at_N >= 0  # the first token of a row has none before it
    return rows_N[is_predicted_N], at_N[is_predicted_N]


def _reads_all_logits(engine: Any, micro_batch: Any) -> bool:
    return (
        not {"response_mask", "loss_mask"} & set(micro_batch.keys())
        or any(tu.get_non_tensor_data(data=micro_batch, key=key, default=False) for key in _READ_ALL_LOGITS)
        or isinstance(engine, FSDPEngineWithValueHead)
    )


def _changed_output_layer(engine: Any, inputs: Any) -> Any:
    """Returns the output layer, which can compute what is asked for, or None if the logits of the model need more."""
    if engine.engine_config.strategy != "fsdp2" or engine.use_ulysses_sp:
        raise ConfigError(
            f"impl_backend={BACKEND} works with strategy=fsdp2 and ulysses_sequence_parallel_size=1, got "
            f"{engine.engine_config.strategy} and {engine.ulysses_sequence_parallel_size}; set them, or unset "
            "model.use_fused_kernels"
        )
    head: Any = engine.module.get_output_embeddings()
    if _is_plain(head):
        linear, head_outputs = head.forward, []
        head.forward = lambda hidden: head_outputs.append(linear(hidden)) or head_outputs[0]
        with torch.no_grad():
            logits = engine.module(input_ids=inputs["input_ids"][:1, :8], use_cache=False).logits
        if torch.equal(logits, head_outputs[0].to(logits.dtype)):
            head.request, head.forward = None, functools.partial(_forward_head, head, linear)
            return head
        head.forward = linear
    logger.warning(
        "%s has an output layer with a bias or LoRA, or changes its logits: impl_backend=%s has no effect, and all "
        "logits are computed",
        type(engine.module).__name__,
        BACKEND,
    )
    return None


def _is_plain(head: Any) -> bool:
    return isinstance(head, torch.nn.Linear) and head.bias is None


def _forward_head(head: Any, linear: Callable[[Tensor], Tensor], hidden: Tensor) -> Tensor:
    """Returns log-probs and entropies, `[2, N]`, of what was asked for, else logits."""
    request, head.request = head.request, None
    if request is None:
        return linear(hidden)
    labels_N = request.args["input_ids_rmpad_rolled"][request.args[_PLACES]]
    device = hidden.device.type
    hidden_ND, weight_VD = hidden.reshape(-1, hidden.shape[-1])[request.places_N], head.weight
    if torch.is_autocast_enabled(device):
        hidden_ND, weight_VD = (tensor.to(torch.get_autocast_dtype(device)) for tensor in (hidden_ND, weight_VD))
    with torch.autocast(device, enabled=False):
        return torch.stack(
            token_log_probs(hidden_ND, weight_VD, labels_N, request.scale_N, with_entropy=request.with_entropy)
        )
