"""verl's rollout server over our inference engine: `rollout.name=agentic`, on CPUs and on single GPUs.

Options: `rollout.engine_kwargs.agentic.{max_cached_tokens, prefill_tokens, prefix_reuse}`; the most running requests
are `rollout.max_num_seqs`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from typing import Any

import ray
import torch
from ray.actor import ActorHandle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.device import get_device_name, get_visible_devices_keyword
from verl.workers.config import HFModelConfig
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput
from verl.workers.rollout.utils import ensure_async_iterator

from verl_agentic.adapters.tensors import get_buckets, put_buckets
from verl_agentic.errors import ConfigError
from verl_agentic.inference.engine import InferenceEngine
from verl_agentic.inference.request import SamplingParams
from verl_agentic.inference.scheduler import EngineConfig

logger = logging.getLogger(__name__)
_ENGINE_KEYS = {"max_cached_tokens", "prefill_tokens", "prefix_reuse"}
_DTYPES = {"float32": "float32", "fp32": "float32", "bfloat16": "bfloat16", "bf16": "bfloat16", "float16": "float16"}


class RolloutServer:
    """The actor that serves one replica."""

    def __init__(self, *, config: Any, model_config: Any, replica_rank: int) -> None:
        self._config = omega_conf_to_dataclass(config)
        self._model_config: HFModelConfig = omega_conf_to_dataclass(model_config, dataclass_type=HFModelConfig)
        self._replica_rank = replica_rank
        self._is_rejecting = False
        self._open = asyncio.Event()
        self._open.set()
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        self._engine = self._make_engine()

    async def ready(self) -> str:
        """Returns a name that no other server of the cluster has."""
        return f"agentic-{self._replica_rank}-{ray.get_runtime_context().get_actor_id()}"

    async def generate(
        self,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        request_id: str,
        image_data: list[Any] | None = None,
        video_data: list[Any] | None = None,
        audio_data: list[Any] | None = None,
        mm_processor_kwargs: dict[str, Any] | None = None,
    ) -> TokenOutput:
        """Samples one continuation.

        Raises:
            ConfigError: images, videos or audio, or parameters that the engine does not know.
            PolicyError: the engine failed; the message has the cause.
        """
        if image_data or video_data or audio_data:
            raise ConfigError("rollout.name=agentic serves text, got images, video or audio; use rollout.name=vllm")
        if self._is_rejecting:
            return TokenOutput(token_ids=[], log_probs=[], stop_reason="aborted", extra_fields=self._versions())
        await self._open.wait()
        params = SamplingParams.from_mapping(self._with_defaults(sampling_params, len(prompt_ids)))
        generation = await self._engine.generate(list(prompt_ids), params, request_id=request_id)
        return TokenOutput(
            token_ids=generation.token_ids,
            log_probs=generation.log_probs,
            stop_reason="aborted" if generation.finish_reason == "aborted" else "completed",
            num_preempted=0,
            extra_fields={
                "global_steps": generation.weights_version,
                "finish_reason": generation.finish_reason,
                "num_cached_tokens": generation.num_cached_tokens,
            },
        )

    async def load_weights(self, buckets: list[Any], global_steps: int | None) -> None:
        """Takes new weights from Ray's object store, bucket by bucket, as one change between two steps.

        Args:
            buckets: object references of dicts name -> (array, dtype); in a list, so that Ray does not fetch them all.
            global_steps: version of the weights.
        """
        version = self._engine.weights_version if global_steps is None else global_steps
        await self._engine.update_weights(get_buckets(buckets), version=version)

    async def abort_all_requests(self, reject_request: bool = False) -> dict[str, Any]:
        """Ends all requests with what they have; new ones wait for `resume_generation`, or are refused."""
        self._is_rejecting = reject_request
        self._open.clear()
        return {"aborted_count": await self._engine.abort_all(), "request_ids": []}

    async def resume_generation(self) -> None:
        """Lets requests in again."""
        self._is_rejecting = False
        await self._engine.resume()
        self._open.set()

    async def wake_up(self, tags: list[str] | None = None) -> None:
        """Nothing sleeps: weights stay, and the cache grows as it is used."""

    async def sleep(self) -> None:
        """Gives the cache's memory back, so that training can have it."""
        await self._engine.release_memory()

    async def clear_kv_cache(self) -> None:
        """Forgets all kept prefixes."""
        await self._engine.clear_cache()

    async def release_kv_cache(self) -> None:
        """Gives the cache's memory back."""
        await self._engine.release_memory()

    async def resume_kv_cache(self) -> None:
        """The cache grows as it is used."""

    async def stats(self) -> dict[str, float]:
        """Returns the engine's counters."""
        return self._engine.stats()

    async def start_profile(self, **_: Any) -> None:
        """No device profiler."""

    async def stop_profile(self) -> None:
        """No device profiler."""

    def _make_engine(self) -> InferenceEngine:
        options = dict((self._config.engine_kwargs or {}).get("agentic") or {})
        unknown = sorted(set(options) - _ENGINE_KEYS)
        if unknown:
            raise ConfigError(f"unknown keys in rollout.engine_kwargs.agentic, got {unknown}; known: {_ENGINE_KEYS}")
        if self._config.dtype not in _DTYPES:
            raise ConfigError(f"rollout.dtype must be one of {sorted(_DTYPES)}, got {self._config.dtype!r}")
        return InferenceEngine.from_pretrained(
            self._model_config.local_path,
            EngineConfig(max_running=self._config.max_num_seqs, seed=self._config.seed + self._replica_rank, **options),
            device=get_device_name(),
            dtype=_DTYPES[self._config.dtype],
        )

    def _with_defaults(self, sampling_params: dict[str, Any], prompt_length: int) -> dict[str, Any]:
        config = self._config
        left = config.prompt_length + config.response_length - prompt_length
        return {
            "max_tokens": max(1, min(config.response_length, left)),
            "ignore_eos": bool(config.ignore_eos),
            **sampling_params,
        }

    def _versions(self) -> dict[str, Any]:
        return {"global_steps": self._engine.weights_version}


class AgenticReplica(RolloutReplica):
    """One server actor, on the node of the replica's first worker."""

    async def launch_servers(self) -> None:
        """Starts the server and waits until it has loaded the model."""
        node_id, devices = await self.workers[0].__ray_call__.remote(
            lambda self: (
                ray.get_runtime_context().get_node_id(),
                os.environ.get(get_visible_devices_keyword(), ""),
            )
        )
        server = (
            ray.remote(RolloutServer)
            .options(
                name=_server_name(self.replica_rank),
                scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node_id, soft=False),
                runtime_env={"env_vars": {get_visible_devices_keyword(): devices}},
                num_cpus=0,
                max_concurrency=self.max_concurrency,
            )
            .remote(config=self.config, model_config=self.model_config, replica_rank=self.replica_rank)
        )
        self.servers = [server]
        self._server_handle = server
        self._server_address = await server.ready.remote()


class ServerAdapter(BaseRollout):
    """The trainer's side: hands weights to the server of its replica."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1) -> None:
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
        """Nothing was put to sleep that needs waking."""

    async def release(self) -> None:
        """Gives the memory of the server's cache back."""
        if self.is_leader_rank:
            await self._handle().release_kv_cache.remote()

    async def update_weights(
        self, weights: Any, global_steps: int | None = None, wire_format: str = "named_tensors", **_: Any
    ) -> None:
        """Sends full tensors to the server, in buckets through Ray's object store.

        Raises:
            ConfigError: a LoRA adapter instead of merged weights, or a delta wire format.
        """
        if wire_format != "named_tensors":
            raise ConfigError(f"rollout.name=agentic takes full tensors, got wire_format={wire_format!r}; use naive")
        limit = self.config.checkpoint_engine.update_weights_bucket_megabytes << 20
        buckets = [
            bucket async for bucket in put_buckets(_merged(weights), bucket_bytes=limit, keep=self.is_leader_rank)
        ]
        if self.is_leader_rank:
            await self._handle().load_weights.remote(buckets, global_steps)

    def _handle(self) -> ActorHandle:
        if self._server is None:
            self._server = ray.get_actor(_server_name(self.replica_rank))
        return self._server


def _server_name(replica_rank: int) -> str:
    return f"agentic_server_{replica_rank}"


async def _merged(weights: Any) -> AsyncIterator[tuple[str, torch.Tensor]]:
    """Passes full weights on and refuses adapters."""
    async for name, tensor in ensure_async_iterator(weights):
        if "lora_" in name:
            raise ConfigError(
                f"rollout.name=agentic serves merged weights, got the LoRA tensor {name!r}; set "
                "actor_rollout_ref.model.lora.merge=True"
            )
        yield name, tensor
