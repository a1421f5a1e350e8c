"""Patches verl: critics of its FSDP engines classify returns (HL-Gauss) with `critic.categorical`.

Wraps `load_valuehead_model`, `FSDPEngineWithValueHead.prepare_model_outputs` and `TrainingWorker.set_loss_fn`.

The value head has an output per bin. The trainer gets the means of the bins as values. The loss is the cross-entropy
with histograms of the returns, aggregated by `critic.loss_agg_mode`. `critic.cliprange_value` has no effect.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from verl.trainer.ppo.core_algos import agg_loss
from verl.utils import model as verl_model
from verl.utils import tensordict_utils as tu
from verl.utils.metric import AggregationType, Metric
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithValueHead
from verl.workers.engine_workers import TrainingWorker
from verl.workers.utils.padding import no_padding_2_padding

from verl_agentic.base.errors import ConfigError
from verl_agentic.credit.aggregate import as_floats, token_mean
from verl_agentic.methods.losses.hl_gauss import bin_edges, decode_values, hl_gauss_loss
from verl_agentic.verl.patching import wrap

_LOGITS = "value_logits"
# Written by `critic_config`, which no other adapter imports.
_VALUE_BINS = "value_bins"


def edges_of(hf_config: Any, device: torch.device | None = None) -> Tensor | None:
    """Returns `[N + 1]` the edges of a critic's bins, or None for regression."""
    section = getattr(hf_config, _VALUE_BINS, None)
    if section is None:
        return None
    return bin_edges(float(section["low"]), float(section["high"]), section["bins"], device=device)


@wrap(verl_model, "load_valuehead_model")
def _load_with_bins(load: Any, local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
    edges = edges_of(model_config)
    if edges is None:
        return load(local_path, torch_dtype, model_config, trust_remote_code)
    model_config.num_labels = len(edges) - 1
    module = load(local_path, torch_dtype, model_config, trust_remote_code)
    if hasattr(module, "v_head"):
        raise ConfigError(
            f"critic.categorical needs a model that transformers can load as a token classifier, got "
            f"{type(module).__name__} from {local_path!r}; use another critic.model.path, or unset it"
        )
    return module


@wrap(FSDPEngineWithValueHead, "prepare_model_outputs")
def _prepare_means(
    prepare: Any, self: Any, output: Any, output_args: Any, micro_batch: Any, logits_processor_func: Any
) -> Any:
    edges = edges_of(self.model_config.hf_config, output.logits.device)
    if edges is None:
        return prepare(self, output, output_args, micro_batch, logits_processor_func)
    logits = output.logits
    values = decode_values(logits, torch.ones_like(logits[..., 0], dtype=torch.bool), edges).unsqueeze(-1)
    means = SimpleNamespace(logits=values)
    outputs = prepare(self, means, output_args, micro_batch, logits_processor_func)
    if logits_processor_func is not None:  # only a pass with a loss needs them
        outputs[_LOGITS] = _to_nested(self, logits, output_args, micro_batch)
    return outputs


def _to_nested(engine: Any, logits: Tensor, output_args: Any, micro_batch: Any) -> Tensor:
    """Returns nested `[B, P + R, N]`."""
    offsets = micro_batch["input_ids"].offsets()
    if tu.get_non_tensor_data(data=micro_batch, key="use_remove_padding", default=True):
        flat = engine._gather_and_unpad_packed(logits.squeeze(0), output_args["pad_size"])
    else:
        flat = torch.cat([row[:length] for row, length in zip(logits, offsets.diff().tolist(), strict=True)])
    return torch.nested.nested_tensor_from_jagged(flat, offsets)


@wrap(TrainingWorker, "set_loss_fn")
def _set_loss_of_bins(set_loss: Any, self: Any, loss_fn: Any) -> Any:
    engine: Any = self.engine
    edges = edges_of(engine.model_config.hf_config) if issubclass(type(engine), FSDPEngineWithValueHead) else None
    if edges is not None:
        # The trainer gives `partial(value_loss, config=...)`.
        loss_fn = functools.partial(categorical_value_loss, config=loss_fn.keywords["config"], edges=edges)
    return set_loss(self, loss_fn)


def categorical_value_loss(
    model_output: Mapping[str, Any], data: Any, dp_group: Any = None, *, config: Any, edges: Tensor
) -> tuple[Tensor, dict[str, Any]]:
    """Returns a micro-batch's share of the loss of a mini-batch, and metrics under verl's names.

    Args:
        model_output: nested `values` `[B, P + R]` and `value_logits` `[B, P + R, N]`.
        dp_group: not used; verl's engines pass it.
        edges: `[N + 1]` of the bins.
    """
    logits_BTN = no_padding_2_padding(model_output[_LOGITS], data)
    values_BT = no_padding_2_padding(model_output["values"], data)
    padded = data.select("returns", "response_mask").to_padded_tensor()
    returns_BT, mask_BT = padded["returns"], padded["response_mask"].bool()
    edges = edges.to(logits_BTN.device)
    loss = agg_loss(
        loss_mat=hl_gauss_loss(logits_BTN, returns_BT, mask_BT, edges),
        loss_mask=mask_BT,
        loss_agg_mode=config.loss_agg_mode,
        loss_scale_factor=config.loss_scale_factor,
        **{name: data[name] for name in ("dp_size", "batch_num_tokens", "global_batch_size")},
    )
    outside_BT = (returns_BT < edges[0]) | (returns_BT > edges[-1])
    metrics = {
        "critic/vpred_mean": token_mean(values_BT, mask_BT),
        "critic/returns_outside_bins": token_mean(outside_BT, mask_BT),
    }
    return loss, {"critic/vf_loss": Metric(value=loss, aggregation=AggregationType.SUM), **as_floats(metrics)}
