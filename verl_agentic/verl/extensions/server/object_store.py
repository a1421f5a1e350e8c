"""Named tensors through Ray's object store: one copy in, none out, without pickling."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any

import numpy as np
import ray
import torch
from verl.workers.rollout.utils import ensure_async_iterator

Bucket = dict[str, tuple[np.ndarray, str]]
"""Name -> the bytes of a tensor, `[*shape, itemsize]`, and its dtype."""

# Tensors in the object store are read-only; the model copies them.
warnings.filterwarnings("ignore", message="The given NumPy array is not writable")


class StoredWeights:
    """Weights that are already in the object store: passed as references or iterated."""

    def __init__(self, fetch: Callable[[], Awaitable[list[Any]]]) -> None:
        """Takes the function that waits for the references of the buckets."""
        self.references = fetch

    async def __aiter__(self) -> AsyncIterator[tuple[str, torch.Tensor]]:
        for reference in await self.references():
            for name, tensor in unpack([await reference]):
                yield name, tensor


async def put_buckets(weights: Any, *, bucket_bytes: int, keep: bool) -> list[Any]:
    """Returns object references of buckets of up to `bucket_bytes` each.

    Args:
        weights: (asynchronous) iterable of name and tensor; always iterated, because gathering a sharded tensor needs
            all ranks.
        bucket_bytes: a larger tensor gets a bucket of its own.
        keep: False returns an empty list.
    """
    references: list[Any] = []
    bucket: Bucket = {}
    size = 0
    async for name, tensor in ensure_async_iterator(weights):
        if not keep:
            continue
        packed = _pack_tensor(tensor)
        if bucket and size + packed[0].nbytes > bucket_bytes:
            references.append(ray.put(bucket))
            bucket, size = {}, 0
        bucket[name] = packed
        size += packed[0].nbytes
    if bucket:
        references.append(ray.put(bucket))
    return references


def unpack(buckets: Iterable[Bucket]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields name and tensor of all buckets; the tensors are views of the store and must not be written to."""
    for bucket in buckets:
        for name, (array, dtype) in bucket.items():
            flat = torch.from_numpy(array).reshape(-1)
            yield name, flat.view(getattr(torch, dtype)).reshape(array.shape[:-1])


def _pack_tensor(tensor: torch.Tensor) -> tuple[np.ndarray, str]:
    # Bytes, because numpy has no bfloat16.
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    array = flat.view(torch.uint8).numpy().reshape(*tensor.shape, tensor.element_size())
    return array, str(tensor.dtype).removeprefix("torch.")
