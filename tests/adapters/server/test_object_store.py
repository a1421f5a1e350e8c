"""Named tensors through the object store: every dtype and shape comes back bit for bit, in buckets of bounded size."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import torch

from verl_agentic.verl.extensions.server import object_store

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int8, torch.uint8, torch.bool]


class Store:
    """Stands in for Ray's object store at the one function that is used of it."""

    def __init__(self) -> None:
        self.objects: list[Any] = []

    def put(self, value: Any) -> int:
        self.objects.append(dict(value))
        return len(self.objects) - 1

    async def get(self, reference: int) -> Any:
        return self.objects[reference]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    store = Store()
    monkeypatch.setattr(object_store.ray, "put", store.put)
    return store


def weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    made = {str(d): (torch.randn(3, 2, generator=generator) * 100).to(d) for d in DTYPES}
    return {
        **made,
        "scalar": torch.tensor(1.5),
        "vector": torch.arange(5.0),
        "empty": torch.zeros(0, 4),
        "transposed": torch.arange(6.0).reshape(2, 3).T,
        "needs_grad": torch.nn.Parameter(torch.ones(2, 2)),
    }


async def stream(values: dict[str, torch.Tensor]) -> AsyncIterator[tuple[str, torch.Tensor]]:
    for item in values.items():
        yield item


@pytest.mark.parametrize("as_stream", [True, False])
async def test_every_tensor_comes_back_bit_for_bit(store: Store, as_stream: bool) -> None:
    sent = weights()
    source: Any = stream(sent) if as_stream else iter(sent.items())
    await object_store.put_buckets(source, bucket_bytes=64, keep=True)
    received = dict(object_store.unpack(store.objects))
    assert list(received) == list(sent)
    for name, tensor in sent.items():
        assert (received[name].dtype, received[name].shape) == (tensor.dtype, tensor.shape), name
        assert torch.equal(received[name], tensor), name


async def test_buckets_stay_below_their_size_except_for_one_larger_tensor(store: Store) -> None:
    values = {f"w{i}": torch.zeros(size) for i, size in enumerate([2, 2, 2, 50, 1, 1])}  # 4 bytes each element
    references = await object_store.put_buckets(stream(values), bucket_bytes=16, keep=True)
    assert references == [0, 1, 2, 3]
    assert [list(bucket) for bucket in store.objects] == [["w0", "w1"], ["w2"], ["w3"], ["w4", "w5"]]


async def test_a_rank_that_keeps_nothing_still_walks_through_all_tensors(store: Store) -> None:
    walked: list[str] = []

    def gather() -> Iterator[tuple[str, torch.Tensor]]:
        for name in "abc":
            walked.append(name)
            yield name, torch.zeros(1)

    assert await object_store.put_buckets(gather(), bucket_bytes=4, keep=False) == []
    assert walked == ["a", "b", "c"] and not store.objects


async def test_stored_weights_are_walked_through_bucket_by_bucket(store: Store) -> None:
    sent = {"a": torch.ones(2), "b": torch.zeros(3)}
    references = await object_store.put_buckets(stream(sent), bucket_bytes=8, keep=True)

    async def fetch() -> list[Any]:
        return [store.get(reference) for reference in references]

    received = {name: tensor async for name, tensor in object_store.StoredWeights(fetch)}
    assert len(references) == 2 and all(torch.equal(received[name], sent[name]) for name in sent)
