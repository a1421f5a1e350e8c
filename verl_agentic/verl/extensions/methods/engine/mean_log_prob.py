"""Patches verl: a batch with `calculate_mean_log_prob` gets the mean log-prob over the vocabulary (ROVER).

Wraps `prepare_model_outputs` of `FSDPEngineWithLMHead`.
"""

from __future__ import annotations

from typing import Any

import torch
from verl.utils import tensordict_utils as tu
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from verl_agentic.verl.patching import wrap


@wrap(FSDPEngineWithLMHead, "prepare_model_outputs")
def _prepare_mean(
    prepare: Any, self: Any, output: Any, output_args: Any, micro_batch: Any, logits_processor_func: Any
) -> Any:
    is_asked = tu.get_non_tensor_data(data=micro_batch, key="calculate_mean_log_prob", default=False)
    mean = mean_log_prob(self, output, output_args, micro_batch) if is_asked else None
    outputs = prepare(self, output, output_args, micro_batch, logits_processor_func)
    return outputs if mean is None else {**outputs, "mean_log_prob": mean}


@torch.no_grad()
def mean_log_prob(engine: Any, output: Any, output_args: Any, micro_batch: Any) -> torch.Tensor:
    """Returns nested `[B, P + R]`: the mean over the vocabulary of the log-probs, of the tempered distribution.

    Without gradient, because the loss uses it as a target.
    """
    logits = output.logits.full_tensor() if hasattr(output.logits, "full_tensor") else output.logits
    offsets = micro_batch["input_ids"].offsets()
    if tu.get_non_tensor_data(data=micro_batch, key="use_remove_padding", default=True):
        scaled = logits.squeeze(0) / output_args["temperature_rmpad"].unsqueeze(-1)
        flat = engine._gather_and_unpad_packed(_average_log_probs(scaled), output_args["pad_size"])
    else:
        rows = _average_log_probs(logits / output_args["temperature"][:, None, None])
        flat = torch.cat([row[:length] for row, length in zip(rows, offsets.diff().tolist(), strict=True)])
    return torch.nested.nested_tensor_from_jagged(flat, offsets)


def _average_log_probs(logits: torch.Tensor) -> torch.Tensor:
    # float32 already: verl's temperature is.
    return logits.mean(dim=-1) - logits.logsumexp(dim=-1)
