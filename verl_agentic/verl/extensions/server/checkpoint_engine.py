"""The checkpoint engine `object_store`: weights from trainer to separate rollout servers without NCCL.

For `trainer.v1.trainer_mode=separate_async` on machines without accelerators; verl's own engines need CUDA or an NPU.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import ray
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

from verl_agentic.verl.extensions.server.object_store import StoredWeights, put_buckets


class Mailbox:
    """An actor that holds the references of one transfer of weights."""

    def __init__(self) -> None:
        self._references: list[Any] = []
        self._is_filled = asyncio.Event()

    async def put(self, references: list[Any]) -> None:
        """Sets the references and wakes waiting receivers."""
        self._references = references
        self._is_filled.set()

    async def get(self) -> list[Any]:
        """Waits for weights and returns their references."""
        await self._is_filled.wait()
        return self._references

    async def clear(self) -> None:
        """Frees the weights in the object store."""
        self._is_filled.clear()
        self._references = []


# verl 0.9 calls it on the class, without a decorator.
@cast("Any", CheckpointEngineRegistry).register("object_store")
class ObjectStoreCheckpointEngine(CheckpointEngine):
    """Rank 0 of the trainer puts buckets into Ray's object store; rollout workers pass the references on."""

    def __init__(self, bucket_size: int, is_master: bool = False) -> None:
        self._bucket_bytes = bucket_size
        self._is_master = is_master
        self._mailbox: Any = None

    def prepare(self) -> dict[str, Any]:
        """Returns the mailbox, which lives as long as its worker; None on other workers."""
        if self._is_master and self._mailbox is None:
            self._mailbox = ray.remote(Mailbox).options(num_cpus=0).remote()
        return {"mailbox": self._mailbox if self._is_master else None}

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[dict[str, Any]]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Passes the mailbox of the trainer's rank 0 to all."""
        mailbox = next(item["mailbox"] for item in metadata if item["mailbox"] is not None)
        return {"mailbox": [mailbox] * actor_wg_world_size}, {"mailbox": [mailbox] * rollout_world_size}

    def init_process_group(self, mailbox: Any) -> None:
        """Takes the mailbox."""
        self._mailbox = mailbox

    def finalize(self) -> None:
        """Empties the mailbox, after all servers have the weights."""
        if self._is_master:
            ray.get(self._mailbox.clear.remote())

    async def send_weights(self, weights: Any, global_steps: int | None = None) -> None:
        """Sends the weights; every rank iterates over them."""
        references = await put_buckets(weights, bucket_bytes=self._bucket_bytes, keep=self._is_master)
        if self._is_master:
            await self._mailbox.put.remote(references)

    def receive_weights(self, global_steps: int | None = None) -> Any:
        """Returns the weights as an asynchronous iterable, which `rollout.name=agentic` passes on without a copy."""
        mailbox = self._mailbox

        async def fetch() -> list[Any]:
            return await mailbox.get.remote()

        return StoredWeights(fetch)
