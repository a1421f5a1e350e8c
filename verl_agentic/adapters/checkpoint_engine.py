"""The checkpoint engine `object_store`: weights from trainer to separate rollout servers without NCCL.

For `trainer.v1.trainer_mode=separate_async` on machines without accelerators; verl's own engines need CUDA or an NPU.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import ray
import torch
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

from verl_agentic.adapters.tensors import get_buckets, put_buckets

_NAME = "agentic_weights_mailbox"


class _Mailbox:
    """Holds the references of the newest weights."""

    def __init__(self) -> None:
        self._count = 0
        self._references: list[Any] = []
        self._news = asyncio.Condition()

    async def put(self, references: list[Any]) -> None:
        """Replaces the weights and wakes who waits for them."""
        async with self._news:
            self._count, self._references = self._count + 1, references
            self._news.notify_all()

    async def count(self) -> int:
        """Returns how many weights have been put."""
        return self._count

    async def get(self, *, after: int) -> tuple[int, list[Any]]:
        """Waits until more than `after` weights have been put; returns how many, and the newest."""
        async with self._news:
            await self._news.wait_for(lambda: self._count > after)
            return self._count, self._references


@CheckpointEngineRegistry.register("object_store")
class ObjectStoreCheckpointEngine(CheckpointEngine):
    """Rank 0 of the trainer puts buckets into Ray's object store; every rollout worker fetches them."""

    def __init__(self, bucket_size: int, is_master: bool = False) -> None:
        self._bucket_bytes = bucket_size
        self._mailbox: Any = None
        self._seen = 0
        self._is_sender = False

    def prepare(self) -> dict[str, Any]:
        """Nothing to allocate."""
        return {}

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[dict[str, Any]]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Makes rank 0 of the trainer the sender."""
        return (
            {"is_sender": [rank == 0 for rank in range(actor_wg_world_size)]},
            {"is_sender": [False] * rollout_world_size},
        )

    def init_process_group(self, is_sender: bool) -> None:
        """Finds the mailbox, or makes it."""
        self._is_sender = is_sender
        self._mailbox = ray.remote(_Mailbox).options(name=_NAME, get_if_exists=True, num_cpus=0).remote()
        self._seen = ray.get(self._mailbox.count.remote())

    def finalize(self) -> None:
        """Nothing to free: the next weights replace these."""

    async def send_weights(self, weights: Any, global_steps: int | None = None) -> None:
        """Puts the weights; every rank walks through them."""
        references = [
            reference async for reference in put_buckets(weights, bucket_bytes=self._bucket_bytes, keep=self._is_sender)
        ]
        if self._is_sender:
            await self._mailbox.put.remote(references)

    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """Yields name and tensor of the next weights."""
        self._seen, references = await self._mailbox.get.remote(after=self._seen)
        for name, tensor in get_buckets(references):
            yield name, tensor
