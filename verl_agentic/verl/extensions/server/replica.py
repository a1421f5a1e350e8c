"""The rollout backend `agentic`: one server actor per replica, and the sender of the trainer's weights."""

from __future__ import annotations

import os
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from verl.plugin.platform import get_platform
from verl.utils.device import get_visible_devices_keyword
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica
from verl.workers.rollout.utils import ensure_async_iterator

from verl_agentic.base.errors import ConfigError
from verl_agentic.verl.extensions.cpu.threads.thread_actors import ActorHandle as ThreadHandle
from verl_agentic.verl.extensions.server import device_weights
from verl_agentic.verl.extensions.server.device_weights import LocalWeights
from verl_agentic.verl.extensions.server.object_store import StoredWeights, put_buckets
from verl_agentic.verl.extensions.server.rollout_server import RolloutServer


class AgenticReplica(RolloutReplica):
    """One server, on the node of the replica's first worker."""

    async def launch_servers(self) -> None:
        """Starts the server and loads the model. Raises ConfigError for a reward or teacher model."""
        if self.is_reward_model or self.is_teacher_model:
            raise ConfigError("rollout.name=agentic serves policies, got a reward or teacher model; use vllm or sglang")
        node_id, devices, cores = await self.workers[0].__ray_call__.remote(_locate_process)
        replicas_per_node = max(1, self.gpus_per_node // self.gpus_per_replica_node)
        options: dict[str, Any] = {
            "name": _server_name(self.replica_rank),
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id=node_id, soft=False),
            "num_cpus": 0,
            "max_concurrency": self.max_concurrency,
        }
        environment = _make_environment(devices)
        if environment:
            options["runtime_env"] = {"env_vars": environment}
        server: Any = (
            ray.remote(RolloutServer)
            .options(**options)
            .remote(
                config=self.config,
                model_config=self.model_config,
                replica_rank=self.replica_rank,
                threads=max(1, cores // replicas_per_node),
            )
        )
        self.servers = [server]
        self._server_handle = server
        self._server_address = await server.ready.remote()


class ServerAdapter(BaseRollout):
    """The trainer's side: sends weights to the server of its replica."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1) -> None:
        """Finds its replica by `RANK`; `replica_rank` -1 means that replicas are counted from the first rank."""
        super().__init__(config, model_config, device_mesh)
        per_replica = (
            self.config.tensor_model_parallel_size
            * self.config.data_parallel_size
            * self.config.pipeline_model_parallel_size
        )
        rank = int(os.environ["RANK"])
        self.replica_rank = rank // per_replica if replica_rank == -1 else replica_rank
        self.is_leader_rank = rank % per_replica == 0
        self._server: ActorHandle | None = None

    async def resume(self, tags: list[str]) -> None:
        """Does nothing, because nothing sleeps."""

    async def release(self) -> None:
        """Releases the memory of the server's cache."""
        if self.is_leader_rank:
            await self._get_server().release_kv_cache.remote()

    async def update_weights(
        self,
        weights: Any,
        global_steps: int | None = None,
        wire_format: str = "named_tensors",
        peft_config: Any = None,
        **_: Any,
    ) -> None:
        """Sends full tensors to the server.

        In one process they are handed over as they are. Else they go in buckets: by device memory on a GPU, or through
        Ray's object store.

        Args:
            weights: (asynchronous) iterable of name and tensor; every rank iterates over it.
            global_steps: version of the weights.
            wire_format: verl's name of the format of `weights`.
            peft_config: set by verl if `weights` are a LoRA adapter or its base.

        Raises:
            ConfigError: the weights are a LoRA adapter or in a delta wire format.
        """
        if wire_format != "named_tensors":
            raise ConfigError(f"rollout.name=agentic takes full tensors, got wire_format={wire_format!r}; use naive")
        if peft_config is not None:
            raise ConfigError(
                "rollout.name=agentic serves merged weights, got a LoRA adapter; "
                "set actor_rollout_ref.model.lora.merge=True"
            )
        bucket_mb = self.config.checkpoint_engine.update_weights_bucket_megabytes
        if isinstance(weights, StoredWeights):
            references = await weights.references()
        elif isinstance(self._get_server(), ThreadHandle):
            pairs = [pair async for pair in ensure_async_iterator(weights)]
            await self._get_server().take_weights.remote(LocalWeights(pairs), global_steps)
            return
        elif device_weights.can_share_device() and self.is_leader_rank:
            with device_weights.open_address() as address:
                loaded = self._get_server().receive_weights.remote(address, global_steps)
                await device_weights.send_weights(weights, address, bucket_mb=bucket_mb)
                await loaded
            return
        else:
            references = await put_buckets(weights, bucket_bytes=bucket_mb << 20, keep=self.is_leader_rank)
        if self.is_leader_rank:
            await self._get_server().load_weights.remote(references, global_steps)

    def _get_server(self) -> ActorHandle:
        if self._server is None:
            self._server = ray.get_actor(_server_name(self.replica_rank))
        return self._server


def _server_name(replica_rank: int) -> str:
    return f"agentic_server_{replica_rank}"


def _locate_process(worker: Any) -> tuple[str, str, int]:
    """Returns node, visible devices and number of cores of this process."""
    devices = os.environ.get(get_visible_devices_keyword(), "")
    return ray.get_runtime_context().get_node_id(), devices, len(os.sched_getaffinity(0))


def _make_environment(devices: str) -> dict[str, str]:
    """Returns variables that let an actor without GPUs see those of the trainer, which sees all without `devices`."""
    platform = get_platform()
    if platform.device_name == "cpu":
        return {}
    keep = dict.fromkeys(platform.ray_noset_envvars(), "1")
    return {**keep, **platform.rollout_env_vars(), **({platform.visible_devices_envvar(): devices} if devices else {})}
