"""Keys and values: contiguous slots of the running requests, and kept prefixes of the finished ones.

Axes: N layers, S slots, K key-value heads, L positions, D head size.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_BLOCK = 16  # prefixes are found at multiples of this many tokens, then extended token by token


@dataclass(frozen=True)
class CacheShape:
    """The constant sizes of a model."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device
    vocab_size: int
    """Number of logits."""


class SlotCache:
    """`keys` and `values`, each `[N, S, K, L, D]`; resized on demand."""

    def __init__(self, shape: CacheShape) -> None:
        self._shape = shape
        self.slots = self.positions = 0
        self.keys, self.values = self._make_tensor(0, 0), self._make_tensor(0, 0)

    def resize(self, *, slots: int, positions: int) -> None:
        """Resizes the cache; keeps the common part."""
        common_shape = min(slots, self.slots), min(positions, self.positions)
        for name in ("keys", "values"):
            old, new = getattr(self, name), self._make_tensor(slots, positions)
            new[:, : common_shape[0], :, : common_shape[1]] = old[:, : common_shape[0], :, : common_shape[1]]
            setattr(self, name, new)
        self.slots, self.positions = slots, positions

    def shrink(self) -> None:
        """Frees all memory; nothing may be running."""
        self.slots = self.positions = 0
        self.keys, self.values = self._make_tensor(0, 0), self._make_tensor(0, 0)
        if self._shape.device.type == "cuda":
            # Else torch keeps it, and a trainer on the same device lacks it.
            torch._C._cuda_clearCublasWorkspaces()
            torch.cuda.empty_cache()

    def move(self, sources: Sequence[int], targets: Sequence[int], *, length: int) -> None:
        """Copies the first `length` positions of slots to other slots, all at once."""
        changed = [pair for pair in zip(sources, targets, strict=True) if pair[0] != pair[1]]
        if changed:
            source, target = torch.tensor(changed, device=self._shape.device).T
            for tensor in (self.keys, self.values):
                tensor[:, target, :, :length] = tensor[:, source, :, :length]

    def load(self, slot: int, prefix: Prefix, *, length: int) -> None:
        """Copies the first `length` positions of a kept prefix into a slot."""
        self.keys[:, slot, :, :length] = prefix.keys[:, :, :length]
        self.values[:, slot, :, :length] = prefix.values[:, :, :length]

    def save(self, slot: int, token_ids: Sequence[int]) -> Prefix:
        """Returns a copy of the slot's positions of `token_ids`."""
        length = len(token_ids)
        return Prefix(
            tuple(token_ids), self.keys[:, slot, :, :length].clone(), self.values[:, slot, :, :length].clone()
        )

    def _make_tensor(self, slots: int, positions: int) -> Tensor:
        s = self._shape
        # Zeros, not garbage: a masked position is multiplied by 0, and 0 * NaN is NaN.
        return torch.zeros(s.layers, slots, s.kv_heads, positions, s.head_dim, dtype=s.dtype, device=s.device)


@dataclass(frozen=True, eq=False)
class Prefix:
    """Keys and values `[N, K, L, D]` of the first tokens of some stream."""

    token_ids: tuple[int, ...]
    keys: Tensor
    values: Tensor


class PrefixStore:
    """Kept prefixes, found by their tokens and evicted in the order of their last use."""

    def __init__(self) -> None:
        self._prefixes: OrderedDict[int, Prefix] = OrderedDict()
        self._by_block: dict[int, dict[int, None]] = {}
        self.num_tokens = 0

    def find(self, token_ids: tuple[int, ...]) -> tuple[Prefix | None, int]:
        """Returns the prefix that shares most tokens with the stream, and their number."""
        best, best_length = None, 0
        for block in reversed(_block_hashes(token_ids)):
            for name in reversed(self._by_block.get(block, {})):
                length = common_length(self._prefixes[name].token_ids, token_ids)
                if length > best_length:
                    best, best_length = name, length
            if best is not None:
                self._prefixes.move_to_end(best)
                return self._prefixes[best], best_length
        return None, 0

    def add(self, prefix: Prefix) -> None:
        """Keeps a prefix, and replaces those that it extends."""
        blocks = _block_hashes(prefix.token_ids)
        if not blocks:
            return
        for block in blocks[-1:]:
            if any(self._covers_prefix(name, prefix) for name in self._by_block.get(block, ())):
                return
        for name in [n for n in self._by_block.get(blocks[0], ()) if self._is_covered(n, prefix)]:
            self._forget(name)
        name = id(prefix)
        self._prefixes[name] = prefix
        self.num_tokens += len(prefix.token_ids)
        for block in blocks:
            self._by_block.setdefault(block, {})[name] = None

    def evict(self, *, max_tokens: int) -> None:
        """Drops the longest unused prefixes until at most `max_tokens` tokens are kept."""
        while self.num_tokens > max(0, max_tokens):
            self._forget(next(iter(self._prefixes)))

    def clear(self) -> None:
        """Drops all prefixes."""
        self.evict(max_tokens=0)

    def _covers_prefix(self, name: int, prefix: Prefix) -> bool:
        stored_ids = self._prefixes[name].token_ids
        return stored_ids[: len(prefix.token_ids)] == prefix.token_ids

    def _is_covered(self, name: int, prefix: Prefix) -> bool:
        stored_ids = self._prefixes[name].token_ids
        return prefix.token_ids[: len(stored_ids)] == stored_ids

    def _forget(self, name: int) -> None:
        prefix = self._prefixes.pop(name)
        self.num_tokens -= len(prefix.token_ids)
        for block in _block_hashes(prefix.token_ids):
            names = self._by_block[block]
            del names[name]
            if not names:
                del self._by_block[block]


def common_length(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """Returns how many tokens two streams share from the start."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    # Bisection over slices, which compare at the speed of C: the first difference is in low ... high - 1.
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def _block_hashes(token_ids: Sequence[int]) -> list[int]:
    """Returns the hash of the first 1, 2, ... whole blocks."""
    hashes, running = [], 0
    for end in range(_BLOCK, len(token_ids) + 1, _BLOCK):
        running = hash((running, *token_ids[end - _BLOCK : end]))
        hashes.append(running)
    return hashes
