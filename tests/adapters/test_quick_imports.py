"""Imports are not interrupted by garbage collections, the state before comes back, and workers collect rarely."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from verl_agentic.verl.quick_imports import without_collections
from verl_agentic.verl.rollout.agent_loop import _collect_rarely


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.enable()
    gc.set_threshold(*thresholds)


@pytest.mark.slow
def test_no_collection_starts_in_the_block_and_its_objects_are_left_out_of_later_ones() -> None:
    collections: list[str] = []
    gc.callbacks.append(lambda phase, info: collections.append(phase))
    try:
        before = gc.get_freeze_count()
        with without_collections():
            objects = [[] for _ in range(50_000)]
            assert not collections
        assert gc.get_freeze_count() >= before + len(objects)
        more = [[] for _ in range(50_000)]
        assert more and collections
    finally:
        gc.callbacks.pop()


@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_state_before_comes_back_after_an_error_too(is_enabled: bool) -> None:
    (gc.enable if is_enabled else gc.disable)()
    with pytest.raises(ImportError), without_collections():
        raise ImportError
    assert gc.isenabled() == is_enabled


@pytest.mark.parametrize(("before", "after"), [(700, 10_000), (50_000, 50_000), (0, 0)])
def test_a_worker_collects_rarely_and_keeps_what_the_user_has_set(before: int, after: int) -> None:
    gc.set_threshold(before, 12, 8)
    _collect_rarely.__wrapped__()
    assert gc.get_threshold() == (after, 12, 8)
