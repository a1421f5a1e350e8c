"""The model's forward pass over slots of the cache, without the overhead that dominates tiny models.

A module call, a config look-up and a mask per layer cost more than the arithmetic of a model of a few million
parameters. For the Llama-shaped family the pass is written out over fused weights; any other causal model runs through
its own transformers modules on the same slots.

Axes: B rows, T new tokens of a row with padding, N new tokens of all rows, H heads, K key-value heads, D head size,
L positions.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.cpu.inference.kv_cache import CacheShape, SlotCache
from verl_agentic.cpu.inference.packed_weights import apply_linear, can_pack, pack_weight
from verl_agentic.cpu.inference.span import REACH_STEP, SlotSpan, make_span

_FUSED_TYPES = frozenset({"llama", "qwen2", "qwen3"})
_STATIC_ROPE = frozenset({"default", "linear", "llama3"})
_PACKED = ("qkv", "out", "gate_up", "down")


class Decoder(Protocol):
    """A causal language model over slots."""

    cache_shape: CacheShape

    def forward(self, span: SlotSpan, cache: SlotCache) -> Tensor:
        """Stores keys and values of the new tokens and returns `[B, V]` logits of each row's last one."""
        ...

    def update(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Takes new weights by their names in the state dict."""
        ...


def make_decoder(model: Any) -> Decoder:
    """Returns the fastest decoder that computes `model`, having compared it with the model's own forward pass.

    Raises:
        ConfigError: the model does not attend to its whole past in every layer, or its cache is of another kind.
    """
    config = model.config
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    window = getattr(config, "sliding_window", None)
    if getattr(config, "layer_types", None) is None and window and window < config.max_position_embeddings:
        kinds = {"sliding_attention"}
    if kinds != {"full_attention"}:
        raise ConfigError(f"the engine serves models with full attention in every layer, got {sorted(kinds)}; use vLLM")
    if config.model_type in _FUSED_TYPES and _is_plain(config):
        return FusedDecoder(model)
    return _make_checked_decoder(model)


def _is_plain(config: Any) -> bool:
    """Returns whether the fused pass supports the configuration."""
    rope_type = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    return rope_type in _STATIC_ROPE and config.hidden_act == "silu" and not getattr(config, "mlp_bias", False)


def _make_checked_decoder(model: Any) -> ModuleDecoder:
    """Returns a decoder after a check: two ragged steps over slots must give the logits of one plain pass."""
    ids = [token % model.config.vocab_size for token in range(1, 8)]
    try:
        decoder = ModuleDecoder(model)
        shape = decoder.cache_shape
        cache = SlotCache(shape)
        cache.resize(slots=2, positions=REACH_STEP)
        first = decoder.forward(make_span([ids[:5], ids[:3]], [0, 0], start=0, shape=shape), cache)
        second = decoder.forward(make_span([ids[5:6], ids[3:7]], [5, 3], start=0, shape=shape), cache)
        with torch.inference_mode():
            plain = model(input_ids=torch.tensor([ids], device=shape.device)).logits[0, [4, 2, 5, 6]]
        difference = (torch.cat([first, second]).float() - plain.float()).abs().max().item()
    except Exception as cause:
        raise ConfigError(
            f"the engine cannot serve this model, got {model.config.model_type!r} failing with "
            f"{type(cause).__name__}: {cause}; use vLLM"
        ) from cause
    # Half precision rounds at every layer; a wrong mask or position is off by far more.
    tolerance = max(1.0, plain.abs().max().item()) * (1e-4 if shape.dtype == torch.float32 else 0.1)
    if not difference < tolerance:
        raise ConfigError(
            f"the engine cannot serve this model, got {model.config.model_type!r} whose logits over the engine's cache "
            f"are off by {difference:.2g}; use vLLM"
        )
    return decoder


def _cache_shape(model: Any) -> CacheShape:
    config = model.config
    weight = model.get_input_embeddings().weight
    return CacheShape(
        layers=config.num_hidden_layers,
        kv_heads=getattr(config, "num_key_value_heads", None) or config.num_attention_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        dtype=weight.dtype,
        device=weight.device,
        vocab_size=model.get_output_embeddings().weight.shape[0],
    )


def _store_tokens(cache: SlotCache, layer: int, keys_NKD: Tensor, values_NKD: Tensor, span: SlotSpan) -> None:
    """Writes the keys and values of the real tokens into their slots."""
    slots, positions = span.places
    cache.keys[layer][slots, :, positions] = keys_NKD
    cache.values[layer][slots, :, positions] = values_NKD


@dataclass
class _Layer:
    """Fused weights of one layer."""

    input_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    qk_norm: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    post_norm: Tensor
    gate_up: Tensor
    down: Tensor


class FusedDecoder:
    """Llama, Qwen2 and Qwen3, written out."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.cache_shape = _cache_shape(model)
        config = model.config
        self._heads = config.num_attention_heads
        self._eps = config.rms_norm_eps
        self._scale = self.cache_shape.head_dim**-0.5
        self._turns = self._rotary_table(config.max_position_embeddings)
        self._is_packed = can_pack(model.get_input_embeddings().weight)
        self._layers: list[_Layer] = []
        for index in (None, *range(config.num_hidden_layers)):
            self._fuse_weights(index)

    def update(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Takes new weights; see `Decoder.update`."""
        for index, named in itertools.groupby(weights, key=lambda pair: self._layer_of(pair[0])):
            if self._is_packed and index is not None:
                self._unpack_layer(index)
            load_weights(self._model, named)
            self._fuse_weights(index)

    @torch.inference_mode()
    def forward(self, span: SlotSpan, cache: SlotCache) -> Tensor:
        """Returns logits; see `Decoder.forward`."""
        # Only attention has padding: all else is computed for the N new tokens.
        hidden = F.embedding(span.of_tokens(span.ids_BT), self._embedding)
        turns = self._turns[span.of_tokens(span.positions_BT)][:, None]
        # The query heads that share a key-value head attend as more tokens of one head: no kernel for a GPU takes a
        # mask with fewer key-value heads, and keys and values would be copied for every query head.
        shared = self._heads // self.cache_shape.kv_heads
        mask = span.mask_B1TL
        if span.ids_BT.shape[1] > 1 and shared > 1:
            mask = mask.repeat(1, 1, shared, 1)
        for index, layer in enumerate(self._layers):
            hidden = hidden + self._attend_layer(index, layer, hidden, turns, mask, span, cache)
            normed = F.rms_norm(hidden, self._shape, layer.post_norm, self._eps)
            gate, up = apply_linear(normed, layer.gate_up).chunk(2, dim=-1)
            hidden = hidden + apply_linear(F.silu(gate) * up, layer.down)
        last = hidden[(span.last_B + 1).cumsum(0) - 1]
        return apply_linear(F.rms_norm(last, self._shape, self._final_norm, self._eps), self._head)

    def _attend_layer(
        self, index: int, layer: _Layer, hidden: Tensor, turns: Tensor, mask: Tensor, span: SlotSpan, cache: SlotCache
    ) -> Tensor:
        batch, new = span.ids_BT.shape
        kv, size = self.cache_shape.kv_heads, self.cache_shape.head_dim
        normed = F.rms_norm(hidden, self._shape, layer.input_norm, self._eps)
        qkv = apply_linear(normed, layer.qkv, layer.qkv_bias).view(-1, self._heads + 2 * kv, size)
        turned, values = qkv.split([self._heads + kv, kv], dim=1)
        if layer.qk_norm is not None:
            turned = F.rms_norm(turned, (size,), eps=self._eps) * layer.qk_norm
        queries, keys = _rotate_pairs(turned, turns).split([self._heads, kv], dim=1)
        _store_tokens(cache, index, keys, values, span)
        queries = span.pad_tokens(queries).transpose(1, 2).reshape(batch, kv, -1, size)
        attended = [
            F.scaled_dot_product_attention(
                queries[begin:end],
                cache.keys[index, span.start + begin : span.start + end, :, :reach],
                cache.values[index, span.start + begin : span.start + end, :, :reach],
                attn_mask=mask[begin:end, ..., :reach],
                scale=self._scale,
            )
            for begin, end, reach in span.chunks
        ]
        heads = (attended[0] if len(attended) == 1 else torch.cat(attended)).reshape(batch, self._heads, new, size)
        return apply_linear(span.of_tokens(heads.transpose(1, 2)).flatten(1), layer.out, layer.out_bias)

    def _rotary_table(self, positions: int) -> Tensor:
        """Returns `[positions, D / 2]` complex numbers, by which pairs of a head's components are multiplied."""
        rotary = self._model.model.rotary_emb
        angles = torch.arange(positions, device=rotary.inv_freq.device)[:, None].float() * rotary.inv_freq.float()
        return torch.polar(torch.full_like(angles, rotary.attention_scaling), angles)

    def _layer_of(self, name: str) -> int | None:
        """Returns the layer to which a weight belongs; None: to none."""
        match = re.match(r"model\.layers\.(\d+)\.", name)
        return int(match[1]) if match and int(match[1]) < len(self._layers) else None

    @torch.no_grad()
    def _fuse_weights(self, index: int | None) -> None:
        """Takes the weights of a layer from the model, or those that are in no layer."""
        model = self._model.model
        if index is None:
            self._embedding = model.embed_tokens.weight.detach()
            self._final_norm = model.norm.weight.detach()
            self._shape = (self._embedding.shape[1],)
            head = self._model.lm_head.weight.detach()
            self._head = pack_weight(head) if self._is_packed else head
            return
        fused = self._fuse_attention(model.layers[index].self_attn)
        if self._is_packed or index == len(self._layers):
            layer = _Layer(**fused, **_share_weights(model.layers[index]))
            if self._is_packed:
                for name in _PACKED:
                    setattr(layer, name, pack_weight(getattr(layer, name)))
                self._set_dense(index, [torch.empty(0)] * 7)
            self._layers[index : index + 1] = [layer]
            return
        # In place afterwards: graphs hold the addresses.
        for name, tensor in fused.items():
            if tensor is not None:
                getattr(self._layers[index], name).copy_(tensor)

    def _unpack_layer(self, index: int) -> None:
        """Gives the model its weights of a packed layer again, because an update may bring only some of them."""
        qkv, out, gate_up, down = (getattr(self._layers[index], name).to_dense() for name in _PACKED)
        kv, size = self.cache_shape.kv_heads, self.cache_shape.head_dim
        heads = [count * size for count in (self._heads, kv)]
        paired, value = qkv.split([sum(heads), heads[1]])
        query, key = paired.unflatten(0, (-1, size // 2, 2)).transpose(1, 2).flatten(0, 2).split(heads)
        self._set_dense(index, [query, key, value, out, *gate_up.chunk(2), down])

    def _set_dense(self, index: int, weights: Iterable[Tensor]) -> None:
        """Sets the weights of a layer of the model that are packed otherwise."""
        attention, mlp = self._model.model.layers[index].self_attn, self._model.model.layers[index].mlp
        modules = (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj)
        for module, weight in zip((*modules, mlp.gate_proj, mlp.up_proj, mlp.down_proj), weights, strict=True):
            module.weight = nn.Parameter(weight, requires_grad=False)

    def _fuse_attention(self, attention: Any) -> dict[str, Any]:
        """Returns the tensors of a layer that are copies of the model's."""
        heads, kv, size = self._heads, self.cache_shape.kv_heads, self.cache_shape.head_dim

        def paired(q: Tensor, k: Tensor, *others: Tensor) -> Tensor:
            """Returns all rows; in heads of q and k, components that are rotated together become neighbours."""
            rows = torch.cat([q, k]).unflatten(0, (-1, 2, size // 2)).transpose(1, 2).flatten(0, 2)
            return torch.cat([rows, *others]).detach()

        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        q_norm, k_norm = (getattr(getattr(attention, name, None), "weight", None) for name in ("q_norm", "k_norm"))
        qk_norm = None
        if q_norm is not None and k_norm is not None:
            qk_norm = paired(q_norm.repeat(heads), k_norm.repeat(kv)).view(heads + kv, size)
        return {
            "qkv": paired(*(p.weight for p in projections)),
            "qkv_bias": None if projections[0].bias is None else paired(*(p.bias for p in projections)),
            "qk_norm": qk_norm,
        }


def _share_weights(layer: Any) -> dict[str, Any]:
    """Returns the other tensors of a layer, which are the model's own; those of the gated MLP move into one."""
    attention, mlp = layer.self_attn, layer.mlp
    gate_up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]).detach()
    for module, weight in zip((mlp.gate_proj, mlp.up_proj), gate_up.chunk(2), strict=True):
        module.weight = nn.Parameter(weight, requires_grad=False)
    return {
        "input_norm": layer.input_layernorm.weight.detach(),
        "out": attention.o_proj.weight.detach(),
        "out_bias": None if attention.o_proj.bias is None else attention.o_proj.bias.detach(),
        "post_norm": layer.post_attention_layernorm.weight.detach(),
        "gate_up": gate_up,
        "down": mlp.down_proj.weight.detach(),
    }


def _rotate_pairs(x: Tensor, turns: Tensor) -> Tensor:
    """Applies rotary position embedding to neighbours. Paper: https://arxiv.org/abs/2104.09864."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)


class ModuleDecoder:
    """Any causal model of transformers, through its own modules."""

    def __init__(self, model: Any) -> None:
        self._model = model.eval()
        self.cache_shape = _cache_shape(model)

    def update(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Takes new weights; see `Decoder.update`."""
        load_weights(self._model, weights)

    @torch.inference_mode()
    def forward(self, span: SlotSpan, cache: SlotCache) -> Tensor:
        """Returns logits; see `Decoder.forward`."""
        output = self._model(
            input_ids=span.ids_BT,
            position_ids=span.positions_BT,
            attention_mask=span.mask_B1TL,
            past_key_values=_SlotView(cache, span),
            use_cache=True,
        )
        return output.logits[torch.arange(span.ids_BT.shape[0], device=span.ids_BT.device), span.last_B]


class _SlotView:
    """A view of the slots as the cache of a transformers model."""

    is_compileable = False

    def __init__(self, cache: SlotCache, span: SlotSpan) -> None:
        self._cache, self._span = cache, span

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Stores the new keys and values and returns those of all positions."""
        keys_NKD, values_NKD = (self._span.of_tokens(x.transpose(1, 2)) for x in (keys, values))
        _store_tokens(self._cache, layer, keys_NKD, values_NKD, self._span)
        slots = slice(self._span.start, self._span.start + keys.shape[0])
        length = self._span.mask_B1TL.shape[-1]
        return self._cache.keys[layer, slots, :, :length], self._cache.values[layer, slots, :, :length]

    def get_seq_length(self, *_: Any) -> int:
        """Returns 0: positions are given with every call."""
        return 0


@torch.no_grad()
def load_weights(model: Any, weights: Iterable[tuple[str, Tensor]]) -> None:
    """Copies tensors into a model by their names in its state dict; others stay.

    Raises:
        DataError: an unknown name, or another shape than the model's.
    """
    targets = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers())
    for name, tensor in weights:
        target = targets.get(name)
        if target is None or target.shape != tensor.shape:
            target_shape = None if target is None else tuple(target.shape)
            raise DataError(
                f"weights do not fit the model, got {name!r} with shape {tuple(tensor.shape)} where the model has "
                f"{target_shape}; trainer and server must load the same model"
            )
        target.copy_(tensor)
