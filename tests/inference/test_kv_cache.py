"""Kept prefixes: found by tokens, bounded, the longest unused ones forgotten first."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference_model import prompt

from verl_agentic.cpu.inference.kv_cache import CacheShape, Prefix, PrefixStore, SlotCache, common_length

SHAPE = CacheShape(layers=1, kv_heads=1, head_dim=2, dtype=torch.float32, device=torch.device("cpu"), vocab_size=8)


def kept(token_ids: list[int]) -> Prefix:
    return Prefix(tuple(token_ids), torch.empty(0), torch.empty(0))


def store_of(*streams: list[int]) -> PrefixStore:
    store = PrefixStore()
    for stream in streams:
        store.add(kept(stream))
    return store


def found(store: PrefixStore, token_ids: list[int]) -> tuple[tuple[int, ...] | None, int]:
    prefix, length = store.find(tuple(token_ids))
    return (prefix.token_ids if prefix else None), length


tokens = st.lists(st.integers(0, 2), max_size=12).map(tuple)


@given(a=tokens, b=tokens)
def test_common_length_is_that_of_a_walk(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    expected = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    assert common_length(a, b) == expected


def test_the_longest_shared_prefix_is_found_to_the_token() -> None:
    stream = prompt(0, 100)
    store = store_of(stream[:40], stream[:75] + prompt(1, 30), prompt(2, 90))
    assert found(store, stream) == (tuple(stream[:75] + prompt(1, 30)), 75)
    assert found(store, stream[:33]) == (tuple(stream[:75] + prompt(1, 30)), 33)


def test_a_prefix_of_another_beginning_is_not_found() -> None:
    stream = prompt(0, 100)
    store = store_of(stream)
    assert found(store, [249, *stream[1:]]) == (None, 0)
    assert found(PrefixStore(), stream) == (None, 0)


def test_a_stream_replaces_those_that_it_extends_and_a_part_adds_nothing() -> None:
    stream = prompt(0, 100)
    store = store_of(stream[:40], stream, stream[:64])
    assert store.num_tokens == 100
    assert found(store, stream) == (tuple(stream), 100)


def test_eviction_forgets_what_was_not_used_for_longest_and_finds_the_rest() -> None:
    a, b, c = (prompt(seed, 50) for seed in range(3))
    store = store_of(a, b, c)
    assert found(store, a)[1] == 50  # now b is the oldest
    store.evict(max_tokens=120)
    assert store.num_tokens == 100
    assert [found(store, stream)[1] for stream in (a, b, c)] == [50, 0, 50]
    store.clear()
    assert store.num_tokens == 0 and [found(store, stream)[1] for stream in (a, b, c)] == [0, 0, 0]


def test_a_resized_cache_keeps_what_lies_in_both_sizes() -> None:
    cache = SlotCache(SHAPE)
    cache.resize(slots=2, positions=3)
    cache.keys[:], cache.values[:] = torch.arange(12.0).view(1, 2, 1, 3, 2), -1.0
    before = cache.keys.clone()
    cache.resize(slots=4, positions=2)
    assert torch.equal(cache.keys[:, :2], before[..., :2, :])
    assert cache.keys[:, 2:].count_nonzero() == 0
    cache.resize(slots=1, positions=5)
    assert torch.equal(cache.keys[:, :, :, :2], before[:, :1, :, :2])
    assert cache.keys[:, :, :, 2:].count_nonzero() == 0 and cache.values.shape == (1, 1, 1, 5, 2)


def test_a_saved_slot_is_a_copy_that_can_be_loaded_elsewhere() -> None:
    cache = SlotCache(SHAPE)
    cache.resize(slots=3, positions=4)
    cache.keys[:, 0], cache.values[:, 0] = 1.0, 2.0
    saved = cache.save(0, [7, 8, 9])
    cache.keys[:, 0] = 5.0
    cache.load(2, saved, length=2)
    assert cache.keys[0, 2, 0].tolist() == [[1, 1], [1, 1], [0, 0], [0, 0]]
    assert cache.values[0, 2, 0, :, 0].tolist() == [2, 2, 0, 0]


@pytest.mark.parametrize("length", [0, 2])
def test_a_moved_slot_leaves_the_rest_of_the_target(length: int) -> None:
    cache = SlotCache(SHAPE)
    cache.resize(slots=2, positions=3)
    cache.keys[:, 0] = 1.0
    cache.move([0], [1], length=length)
    assert cache.keys[0, 1, 0, :, 0].tolist() == [1.0] * length + [0.0] * (3 - length)
