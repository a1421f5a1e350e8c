"""Packs rows that begin alike: `model.fused_kernel_options.shared_prompts=true`, with `impl_backend=sampled`.

The rows of a pack are one row in which each common beginning (the system message, the prompt of a group, the turns
before a branch) stands once. A token sees those that precede it in its own row, at their positions. So log-probs and
gradients are those of the single rows.

Prefix sharing in GRPO: https://arxiv.org/abs/2506.05433. Deviations: one mask, where the paper splits the attention;
beginnings of any rows are shared.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

logger = logging.getLogger(__name__)
_CHECKED = "agentic_can_share_prompts"
_TOLERANCE = 1e-2
_TOKENS_OF_A_PASS = 32
"""Tokens that cost about as much as one more pass."""


class PackedRows(NamedTuple):
    """`B` rows of up to `T` tokens as one row of `L` tokens."""

    inputs: Mapping[str, Tensor]
    """`input_ids` and `position_ids`, `[1, L]`, and `attention_mask`, `[1, 1, L, L]`, true where a token is seen."""
    places_BT: Tensor
    """Places in the packed row of the tokens of each row, 0 behind its end."""


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


def packs_of_rows(rows: Sequence[Tensor], *, hidden_size: int) -> list[list[int]]:
    """Returns the row numbers of the packs that together cost the least; all rows, each in one pack."""
    order, shared = _sort_rows(rows)
    lengths = np.array([len(rows[number]) for number in order])
    # new[end]: tokens of the first `end` rows that do not stand in the row before.
    new = np.concatenate([[0], (lengths - shared).cumsum()])
    # cost[end]: of the first `end` rows. The last of their packs begins at begins[end].
    cost, begins = np.zeros(len(order) + 1), np.zeros(len(order) + 1, dtype=int)
    for end in range(1, len(order) + 1):
        totals = cost[:end] + _cost(new[end] - new[:end] + shared[:end], hidden_size)
        begins[end] = totals.argmin()
        cost[end] = totals[begins[end]]
    packs, end = [], len(order)
    while end:
        packs.append(order[begins[end] : end])
        end = int(begins[end])
    return packs[::-1]


def pack_rows(engine: Any, micro_batch: Any, inputs: Mapping[str, Any]) -> PackedRows | None:
    """Returns the rows of a micro-batch as one; None if that costs more, or if the model does not allow it.

    Args:
        engine: with the model.
        micro_batch: nested rows.
        inputs: verl's padded inputs of these rows.
    """
    if not is_chosen(engine.model_config) or set(inputs) != {"input_ids", "position_ids", "attention_mask"}:
        return None
    if inputs["position_ids"].dim() != 2:  # positions in images
        return None
    if not hasattr(engine, _CHECKED):  # with several ranks, all of them pass here at their first micro-batch
        has_one_mask = _has_full_attention(engine.module.config.get_text_config())
        setattr(engine, _CHECKED, has_one_mask and _equals_single_rows(engine.module, inputs["input_ids"].device))
    if not getattr(engine, _CHECKED):
        return None
    packed = _build_packed_rows(micro_batch["input_ids"].unbind(), micro_batch["position_ids"].unbind())
    hidden_size = engine.module.config.get_text_config().hidden_size
    count, length = inputs["input_ids"].shape
    is_cheaper = _cost(packed.inputs["input_ids"].shape[1], hidden_size) < count * _cost(length, hidden_size)
    return packed if is_cheaper else None


def _cost(tokens: Any, hidden_size: int) -> Any:
    """Returns the cost of a pass in tokens without attention: weights of a layer, its attention, and the rest."""
    return tokens + tokens**2 / (6 * hidden_size) + _TOKENS_OF_A_PASS


def _sort_rows(rows: Sequence[Tensor]) -> tuple[list[int], np.ndarray]:
    """Returns row numbers, those that begin alike in sequence, and how much each row shares with the one before."""
    texts = [row.tolist() for row in rows]
    order = sorted(range(len(rows)), key=texts.__getitem__)
    shared = np.zeros(len(order), dtype=int)
    for place in range(1, len(order)):
        before, row = rows[order[place - 1]], rows[order[place]]
        size = min(len(before), len(row))
        shared[place] = int((before[:size] == row[:size]).cumprod(0).sum())
    return order, shared


def _build_packed_rows(rows: Sequence[Tensor], positions: Sequence[Tensor]) -> PackedRows:
    device = rows[0].device
    order, shared = _sort_rows(rows)
    places_BT = torch.zeros(len(rows), max(len(row) for row in rows), dtype=torch.long, device=device)
    ids, position_ids, before, length = [], [], order[0], 0
    for number, size in zip(order, shared.tolist(), strict=True):
        new = len(rows[number]) - size
        places_BT[number, :size] = places_BT[before, :size]
        places_BT[number, size : size + new] = torch.arange(length, length + new, device=device)
        ids.append(rows[number][size:])
        position_ids.append(positions[number][size:])
        before, length = number, length + new
    # A token is seen from itself to the end of the last row that it belongs to.
    ends_L, places_L = torch.zeros(length, dtype=torch.long, device=device), torch.arange(length, device=device)
    for number in order:
        path = places_BT[number, : len(rows[number])]
        ends_L[path] = path[-1]
    is_seen_LL = (places_L <= places_L[:, None]) & (places_L[:, None] <= ends_L)
    inputs = {
        "input_ids": torch.cat(ids)[None],
        "position_ids": torch.cat(position_ids)[None],
        "attention_mask": is_seen_LL[None, None],
    }
    return PackedRows(inputs, places_BT)


def _has_full_attention(config: Any) -> bool:
    """Returns whether every layer sees all earlier tokens, however many they are."""
    layers = getattr(config, "layer_types", None)
    is_full = set(layers) == {"full_attention"} if layers else getattr(config, "sliding_window", None) is None
    if not is_full:
        logger.warning("a model with sliding windows or linear attention: shared_prompts has no effect")
    return is_full


@torch.no_grad()
def _equals_single_rows(module: Any, device: torch.device) -> bool:
    """Returns whether a model gives two rows the same logits in a pack; warns if not."""
    ids = torch.arange(1, 13, device=device) % module.config.get_text_config().vocab_size
    rows = [ids, torch.cat([ids[:5], ids[7:]])]
    positions = [torch.arange(len(row), device=device) for row in rows]
    packed = _build_packed_rows(rows, positions)
    shared = module(**packed.inputs, use_cache=False).logits[0]
    difference = largest = 0.0
    for row, position, places in zip(rows, positions, packed.places_BT, strict=True):
        single = module(input_ids=row[None], position_ids=position[None], use_cache=False).logits[0]
        difference = max(difference, (single - shared[places[: len(row)]]).abs().max().item())
        largest = max(largest, single.abs().max().item())
    if difference > _TOLERANCE * largest:
        logger.warning(
            "%s gives packed rows other logits (by up to %.2g): shared_prompts has no effect",
            type(module).__name__,
            difference,
        )
        return False
    return True
