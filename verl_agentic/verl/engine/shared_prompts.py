"""Packs rows that have one prompt: `model.fused_kernel_options.shared_prompts=true`, with `impl_backend=sampled`.

The prompt passes through the model once, and the responses follow it in one row. A response sees the prompt and itself,
at the positions of its own row. So log-probs and gradients are those of the single rows.

Prefix sharing in GRPO: https://arxiv.org/abs/2506.05433. Deviation: one mask, where the paper splits the attention.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from verl.utils import tensordict_utils as tu

logger = logging.getLogger(__name__)
_CHECKED = "agentic_can_share_prompts"
_PROBED_ROWS, _TOLERANCE = 2, 1e-2


class PackedRows(NamedTuple):
    """Rows of one prompt of `P` tokens as one row of `L` tokens."""

    inputs: Mapping[str, Tensor]
    """`input_ids` and `position_ids`, `[1, L]`, and `attention_mask`, `[1, 1, L, L]`, true where a token is seen."""
    shifts_B: Tensor
    """Difference of the places of a response in the packed row and in its own."""
    prompt_length: int

    def places(self, rows_N: Tensor, at_N: Tensor) -> Tensor:
        """Returns the places in the packed row, `[N]`, of places in single rows."""
        return at_N + torch.where(at_N < self.prompt_length, 0, self.shifts_B[rows_N])


def is_chosen(model_config: Any) -> bool:
    """Returns whether a model's section chooses this."""
    return bool((model_config.fused_kernel_options or {}).get("shared_prompts"))


def prompt_lengths(micro_batch: Any) -> Tensor:
    """Returns the number of tokens before the mask of the loss, `[B]`."""
    lengths_B = micro_batch["input_ids"].offsets().diff()
    mask = micro_batch["response_mask" if "response_mask" in micro_batch else "loss_mask"]
    if mask.is_nested:
        return lengths_B - mask.offsets().diff()
    return micro_batch["attention_mask"][:, : -mask.shape[1]].sum(dim=-1)


def groups_of_prompts(micro_batch: Any, *, hidden_size: int) -> list[list[int]]:
    """Returns the row numbers of packs: all rows, each in one pack, those with a prompt of their own alone.

    A pack has as many rows as cost the least. The cost of `L` tokens is `L + L^2 / (6 hidden_size)`: the weights of a
    layer, and its attention.
    """
    rows = micro_batch["input_ids"].unbind()
    lengths = [len(row) for row in rows]
    by_prompt: dict[tuple[int, ...], list[int]] = {}
    for number, (row, length) in enumerate(zip(rows, prompt_lengths(micro_batch).tolist(), strict=True)):
        by_prompt.setdefault(tuple(row[:length].tolist()), []).append(number)

    def packs_of(prompt: Sequence[int], members: list[int], size: int) -> tuple[float, list[list[int]]]:
        packs = [members[start : start + size] for start in range(0, len(members), size)]
        tokens = [len(prompt) + sum(lengths[row] - len(prompt) for row in pack) for pack in packs]
        return sum(count + count**2 / (6 * hidden_size) for count in tokens), packs

    all_packs: list[list[int]] = []
    for prompt, members in by_prompt.items():
        choices = [packs_of(prompt, members, size) for size in range(1, len(members) + 1)]
        _, packs = min(choices, key=itemgetter(0))
        all_packs += packs
    return all_packs


def pack_rows(engine: Any, micro_batch: Any, inputs: Mapping[str, Any]) -> PackedRows | None:
    """Returns the rows of a micro-batch as one; None if they have different prompts, or the model or
    several ranks do not allow it.

    Args:
        engine: with the model.
        micro_batch: nested rows, and the mask of the loss.
        inputs: verl's padded inputs of these rows.
    """
    names = {"input_ids", "position_ids", "attention_mask"}
    if not is_chosen(engine.model_config) or set(inputs) != names or len(micro_batch) < 2:
        return None
    if engine.get_data_parallel_size() > 1:  # they must pass through the model equally often, and their rows differ
        return None
    rows, lengths = micro_batch["input_ids"].unbind(), prompt_lengths(micro_batch).tolist()
    length = lengths[0]
    if not length or set(lengths) != {length} or any(not torch.equal(row[:length], rows[0][:length]) for row in rows):
        return None
    if not hasattr(engine, _CHECKED):
        has_one_mask = _has_full_attention(engine.module.config.get_text_config())
        setattr(engine, _CHECKED, has_one_mask and _equals_single_rows(engine.module, micro_batch, inputs, length))
    return _build_packed_rows(micro_batch, length) if getattr(engine, _CHECKED) else None


def _build_packed_rows(micro_batch: Any, length: int) -> PackedRows:
    def join(nested: Tensor) -> Tensor:
        rows = nested.unbind()
        return torch.cat([rows[0], *(row[length:] for row in rows[1:])])

    input_ids = micro_batch["input_ids"]
    sizes_B = input_ids.offsets().diff() - length
    shifts_B = sizes_B.cumsum(0) - sizes_B
    # 0 for the prompt, and the number of the row, from 1 on, for its response.
    numbers = torch.arange(1, len(sizes_B) + 1, device=sizes_B.device)
    owner_L = torch.cat([sizes_B.new_zeros(length), numbers.repeat_interleave(sizes_B)])
    is_seen_LL = ((owner_L == owner_L[:, None]) | (owner_L == 0)).tril()
    inputs = {
        "input_ids": join(input_ids)[None],
        "position_ids": join(micro_batch["position_ids"])[None],
        "attention_mask": is_seen_LL[None, None],
    }
    return PackedRows(inputs, shifts_B, length)


def _has_full_attention(config: Any) -> bool:
    """Returns whether every layer sees all earlier tokens, however many they are."""
    layers = getattr(config, "layer_types", None)
    is_full = set(layers) == {"full_attention"} if layers else getattr(config, "sliding_window", None) is None
    if not is_full:
        logger.warning("a model with sliding windows or linear attention: shared_prompts has no effect")
    return is_full


@torch.no_grad()
def _equals_single_rows(module: Any, micro_batch: Any, inputs: Mapping[str, Any], length: int) -> bool:
    """Returns whether a model gives some rows the same logits in a pack; warns if not."""
    few: Any = tu.index_select_tensor_dict(micro_batch, list(range(_PROBED_ROWS)))
    packed = _build_packed_rows(few, length)
    single = module(**{name: value[:_PROBED_ROWS] for name, value in inputs.items()}, use_cache=False).logits
    shared = module(**packed.inputs, use_cache=False).logits[0]
    sizes = few["input_ids"].offsets().diff().tolist()
    difference = max(
        (single[row, places] - shared[packed.places(torch.full_like(places, row), places)]).abs().max().item()
        for row, places in ((row, torch.arange(size, device=shared.device)) for row, size in enumerate(sizes))
    )
    if difference > _TOLERANCE * single.abs().max().item():
        logger.warning(
            "%s gives packed rows other logits (by up to %.2g): shared_prompts has no effect",
            type(module).__name__,
            difference,
        )
        return False
    return True
