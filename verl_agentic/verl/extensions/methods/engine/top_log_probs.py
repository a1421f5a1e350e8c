"""Patches verl: a batch with `calculate_top_tokens` gets log-probs of the most likely tokens (SDPO).

Wraps `prepare_model_outputs` of `FSDPEngineWithLMHead`. The first pass over a row gives the column `top_ids`: the most
likely tokens at every place of the response. A pass over a row that has this column gives `top_log_probs` of these
tokens, with gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from verl.utils import tensordict_utils as tu
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from verl_agentic.verl.patching import wrap

TOP_TOKENS = "calculate_top_tokens"
"""Key of a batch's `extra_info`: the number of tokens; 0 for none."""
TOP_IDS, TOP_LOG_PROBS = "top_ids", "top_log_probs"


@wrap(FSDPEngineWithLMHead, "prepare_model_outputs")
def _prepare_top(
    prepare: Any, self: Any, output: Any, output_args: Any, micro_batch: Any, logits_processor_func: Any
) -> Any:
    count = tu.get_non_tensor_data(data=micro_batch, key=TOP_TOKENS, default=0)
    columns = read_top_tokens(output, output_args, micro_batch, count=count) if count else {}
    return {**prepare(self, output, output_args, micro_batch, logits_processor_func), **columns}


def read_top_tokens(output: Any, output_args: Any, micro_batch: Any, *, count: int) -> dict[str, Tensor]:
    """Returns `top_ids` or `top_log_probs` of the tempered distribution, nested `[B, R, K]`.

    K is `count`, or the size of a smaller vocabulary.
    """
    logits, offsets = _cut_responses(output, output_args, micro_batch), micro_batch["responses"].offsets()
    if TOP_IDS not in micro_batch:
        ids = logits.detach().topk(min(count, logits.shape[-1]), dim=-1).indices
        return {TOP_IDS: torch.nested.nested_tensor_from_jagged(ids.int(), offsets)}
    log_probs = logits.gather(-1, micro_batch[TOP_IDS].values().long()) - logits.logsumexp(dim=-1, keepdim=True)
    return {TOP_LOG_PROBS: torch.nested.nested_tensor_from_jagged(log_probs, offsets)}


def _cut_responses(output: Any, output_args: Any, micro_batch: Any) -> Tensor:
    """Returns `[responses, vocabulary]` float32: the tempered logits that predict the tokens of the responses."""
    logits = output.logits.full_tensor() if hasattr(output.logits, "full_tensor") else output.logits
    lengths = micro_batch["input_ids"].offsets().diff().tolist()
    if tu.get_non_tensor_data(data=micro_batch, key="use_remove_padding", default=True):
        rows = logits.squeeze(0)[: sum(lengths)].split(lengths)
        temperatures = [part[0] for part in output_args["temperature_rmpad"][: sum(lengths)].split(lengths)]
    else:
        rows, temperatures = logits.unbind(), output_args["temperature"].unbind()
    counts = micro_batch["responses"].offsets().diff().tolist()
    places = zip(rows, temperatures, lengths, counts, strict=True)
    # Logits of a place predict the token behind it.
    return torch.cat([row[n - r - 1 : n - 1].float() / t.clamp(min=1e-8) for row, t, n, r in places])
