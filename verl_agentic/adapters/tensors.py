"""Named tensors through Ray's object store, in buckets, without pickling their content."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import ray
import torch
from verl.workers.rollout.utils import ensure_async_iterator


async def put_buckets(weights: Any, *, bucket_bytes: int, keep: bool) -> AsyncIterator[Any]:
    """Yields object references of dicts name -> (bytes, dtype) of up to `bucket_bytes` each.

    Args:
        weights: (asynchronous) iterable of name and tensor; walked through even when nothing is kept, because
            gathering a sharded tensor takes all ranks.
        bucket_bytes: a larger tensor gets a bucket of its own.
        keep: False yields nothing.
    """
    bucket: dict[str, tuple[np.ndarray, str]] = {}
    size = 0
    async for name, tensor in ensure_async_iterator(weights):
        if not keep:
            continue
        packed = _pack(tensor)
        if bucket and size + packed[0].nbytes > bucket_bytes:
            yield ray.put(bucket)
            bucket, size = {}, 0
        bucket[name] = packed
        size += packed[0].nbytes
    if bucket:
        yield ray.put(bucket)


def get_buckets(references: list[Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields name and tensor of all buckets; the tensors are copies, free to be written to."""
    for reference in references:
        for name, (array, dtype) in ray.get(reference).items():
            raw = torch.from_numpy(array.copy())
            yield name, raw.reshape(-1).view(getattr(torch, dtype)).reshape(array.shape[:-1])


def _pack(tensor: torch.Tensor) -> tuple[np.ndarray, str]:
    # Bytes, because numpy has no bfloat16.
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().reshape(*tensor.shape, -1), str(tensor.dtype).removeprefix("torch.")
