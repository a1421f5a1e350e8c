"""Packs rows that have one prompt: `model.fused_kernel_options.shared_prompts=true`, with `impl_backend=sampled`.

The prompts of a micro-batch pass through the model once each, and the responses follow their prompt, all in one row
without padding. A response sees the prompt and itself, at the positions of its own row. So log-probs and gradients are
those of the single rows. Every micro-batch is one pass, so that several ranks stay together.

Attention is split, as in the paper: prompts are causal, and each response attends to its prompt and itself. So no mask
of the whole row exists, and attention never costs more than that of single rows.

Prefix sharing in GRPO: https://arxiv.org/abs/2506.05433. Deviation: attention is that of torch (SDPA).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

logger = logging.getLogger(__name__)
_ATTENTION = "sdpa"
_CHECKED = "agentic_can_share_prompts"
_TOLERANCE, _TOLERANCE_HALF = 1e-3, 0.1
"""Largest difference of packed and single rows, as a share of the norm of the logits."""


@dataclass(frozen=True, eq=False)
class Pack:
    """The places of rows of one prompt of `P` tokens, in one row of all packs; the responses have up to `R` tokens."""

    start: int
    prompt_length: int
    sizes: tuple[int, ...]
    """Lengths of the responses."""
    device: torch.device
    masks: dict[torch.dtype, Tensor] = field(default_factory=dict)
    """`[1, 1, R, P + R]` by type. It is shared by all layers, because torch keeps the mask of each for the gradient."""

    @property
    def end(self) -> int:
        """The place behind the last token."""
        return self.start + self.prompt_length + sum(self.sizes)

    def attend(self, module: Any, query: Tensor, key: Tensor, value: Tensor, **options: Any) -> list[Tensor]:
        """Returns outputs `[tokens, H, D]`, in parts, of queries `[1, H, tokens, D]`."""
        length = self.prompt_length
        query, key, value = (x[:, :, self.start : self.end] for x in (query, key, value))
        if len(self.sizes) == 1:
            return [sdpa_attention_forward(module, query, key, value, None, **options)[0][0]]
        prompt_query, prompt_key, prompt_value = (x[:, :, :length] for x in (query, key, value))
        prompt_output, _ = sdpa_attention_forward(module, prompt_query, prompt_key, prompt_value, None, **options)
        keys, values = (
            torch.cat([prompt.expand(len(self.sizes), -1, -1, -1), self._pad_responses(x)], dim=2)
            for prompt, x in ((prompt_key, key), (prompt_value, value))
        )
        output_BRHD, _ = sdpa_attention_forward(
            module, self._pad_responses(query), keys, values, self._mask(query.dtype), **options
        )
        return [prompt_output[0], *(row[:size] for row, size in zip(output_BRHD, self.sizes, strict=True))]

    def _pad_responses(self, x_1HND: Tensor) -> Tensor:
        """Returns `[B, H, R, D]`, with zeros behind short responses, which no token attends to."""
        responses_NHD = x_1HND[0, :, self.prompt_length :].transpose(0, 1)
        return pad_sequence(list(responses_NHD.split(self.sizes)), batch_first=True).transpose(1, 2)

    def _mask(self, dtype: torch.dtype) -> Tensor:
        if dtype not in self.masks:
            longest = max(self.sizes)
            shape = (1, 1, longest, self.prompt_length + longest)
            mask = torch.full(shape, -torch.inf, dtype=dtype, device=self.device)
            self.masks[dtype] = mask.triu(self.prompt_length + 1)
        return self.masks[dtype]


class PackedRows(NamedTuple):
    """Rows as one row of `L` tokens, prompts once."""

    inputs: Mapping[str, Any]
    """Of the model."""
    starts_B: Tensor
    """Place of the prompt of each row."""
    shifts_B: Tensor
    """Difference of the places of a response in the packed row and in its own."""
    prompt_lengths_B: Tensor

    def places(self, rows_N: Tensor, at_N: Tensor) -> Tensor:
        """Returns the places in the packed row, `[N]`, of places in single rows."""
        is_prompt_N = at_N < self.prompt_lengths_B[rows_N]
        return at_N + torch.where(is_prompt_N, self.starts_B[rows_N], self.shifts_B[rows_N])


def shared_lengths(micro_batch: Any) -> list[int]:
    """Returns the number of tokens of each row that may stand once: prompts, or what all demonstrations begin with."""
    if "response_mask" in micro_batch:
        return prompt_lengths(micro_batch).tolist()
    rows = micro_batch["input_ids"].unbind()
    shortest = min(len(row) for row in rows)
    is_common = (torch.stack([row[:shortest] for row in rows]) == rows[0][:shortest]).all(dim=0)
    # At least one token of a row is its own.
    return [min(int(is_common.cumprod(dim=0).sum()), shortest - 1)] * len(rows)


def prompt_lengths(micro_batch: Any) -> Tensor:
    """Returns the number of tokens before the mask of the loss, `[B]`."""
    lengths_B = micro_batch["input_ids"].offsets().diff()
    mask = micro_batch["response_mask" if "response_mask" in micro_batch else "loss_mask"]
    if mask.is_nested:
        return lengths_B - mask.offsets().diff()
    return micro_batch["attention_mask"][:, : -mask.shape[1]].sum(dim=-1)


def pack_rows(engine: Any, micro_batch: Any, inputs: Mapping[str, Any]) -> PackedRows | None:
    """Returns the rows of a micro-batch as one; None if the model does not allow it.

    Args:
        micro_batch: nested rows, and the mask of the loss.
        inputs: verl's inputs of these rows.
    """
    if not can_share_prompts(engine) or set(inputs) != {"input_ids", "position_ids", "attention_mask"}:
        return None
    rows, positions = (micro_batch[name].unbind() for name in ("input_ids", "position_ids"))
    return _join_rows(rows, positions, shared_lengths(micro_batch))


def can_share_prompts(engine: Any) -> bool:
    """Returns whether an engine packs rows; warns if its model cannot. All ranks must call it for the same pass."""
    if not (engine.model_config.fused_kernel_options or {}).get("shared_prompts"):
        return False
    if not hasattr(engine, _CHECKED):
        setattr(engine, _CHECKED, _can_attend(engine.module) and _equals_single_rows(engine.module))
    return getattr(engine, _CHECKED)


def _join_rows(rows: Any, positions: Any, lengths: list[int]) -> PackedRows:
    by_prompt: dict[tuple[int, ...], list[int]] = {}
    for number, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        # Rows without a prompt or a response have nothing to share.
        prompt = tuple(row[:length].tolist()) if 0 < length < len(row) else (-1 - number,)
        by_prompt.setdefault(prompt, []).append(number)
    device, packs, parts = rows[0].device, [], []
    starts, shifts, end = [0] * len(rows), [0] * len(rows), 0
    for members in by_prompt.values():
        start, length = end, lengths[members[0]]
        parts.append((members[0], 0, length))
        end += length
        for number in members:
            starts[number], shifts[number] = start, end - length
            parts.append((number, length, len(rows[number])))
            end += len(rows[number]) - length
        packs.append(Pack(start, length, tuple(len(rows[number]) - length for number in members), device))
    inputs = {
        "input_ids": torch.cat([rows[row][begin:stop] for row, begin, stop in parts])[None],
        "position_ids": torch.cat([positions[row][begin:stop] for row, begin, stop in parts])[None],
        # A mask of four axes is passed on as it is; without any, transformers would make one of the whole row.
        "attention_mask": torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device),
        "shared_prompts": tuple(packs),
    }
    starts_B, shifts_B, lengths_B = (torch.tensor(values, device=device) for values in (starts, shifts, lengths))
    return PackedRows(inputs, starts_B, shifts_B, lengths_B)


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Computes attention as transformers does, or of packs."""
    packs = options.pop("shared_prompts", None)
    if packs is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    dtype, device = query.dtype, query.device.type
    is_on_cpu = device == "cpu"  # where torch's backward pass takes up to 3.5 times as long in bfloat16 as in float32
    if is_on_cpu:
        query, key, value = (x.float() for x in (query, key, value))
    with torch.autocast(device, enabled=not is_on_cpu and torch.is_autocast_enabled(device)):
        parts = [part for pack in packs for part in pack.attend(module, query, key, value, **options)]
    return torch.cat(parts)[None].to(dtype), None


def _can_attend(module: Any) -> bool:
    """Returns whether every layer sees all earlier tokens, however many they are, with an attention of transformers."""
    config = module.config.get_text_config()
    layers = getattr(config, "layer_types", None)
    is_full = set(layers) == {"full_attention"} if layers else getattr(config, "sliding_window", None) is None
    if not is_full:
        logger.warning("a model with sliding windows or linear attention: shared_prompts has no effect")
        return False
    if config._attn_implementation != _ATTENTION or not getattr(module, "_supports_attention_backend", False):
        logger.warning(
            "%s with attn_implementation=%s: shared_prompts has no effect; it needs %s, and a model that is part of "
            "transformers",
            type(module).__name__,
            config._attn_implementation,
            _ATTENTION,
        )
        return False
    AttentionInterface.register(_ATTENTION, _attend)
    return True


@torch.no_grad()
def _equals_single_rows(module: Any) -> bool:
    """Returns whether a model gives two rows the same logits in a pack; warns if not."""
    # Spread over the vocabulary: the first ids are control tokens, and after a run of them bfloat16 may give noise.
    ids_BT = torch.arange(0, 24 * 997, 997, device=next(module.parameters()).device).reshape(2, 12)
    ids_BT %= module.config.vocab_size
    ids_BT[1, :7] = ids_BT[0, :7]
    positions_BT = torch.arange(12, device=ids_BT.device).expand(2, -1)
    packed = _join_rows(ids_BT.unbind(), positions_BT.unbind(), [7, 7])
    single = module(
        input_ids=ids_BT, position_ids=positions_BT, attention_mask=torch.ones_like(ids_BT), use_cache=False
    ).logits
    shared = module(**packed.inputs, use_cache=False).logits[0]
    places = (packed.places(torch.full_like(at, row), at) for row, at in enumerate(positions_BT))
    difference = ((single - torch.stack([shared[at] for at in places])).norm() / single.norm()).item()
    if not difference < (_TOLERANCE if single.dtype == torch.float32 else _TOLERANCE_HALF):
        logger.warning(
            "%s gives packed rows other logits (%.2g of their norm): shared_prompts has no effect",
            type(module).__name__,
            difference,
        )
        return False
    return True
