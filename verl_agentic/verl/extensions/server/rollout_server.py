"""The actor behind `rollout.name=agentic`: verl's rollout server calls, answered by our inference engine.

Options: `rollout.engine_kwargs.agentic.{max_cached_tokens, prefill_tokens, prefix_reuse}`; `rollout.max_num_seqs` is
the maximum number of running requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import ray
import torch
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.device import get_device_name
from verl.workers.config import HFModelConfig
from verl.workers.rollout.replica import TokenOutput

from verl_agentic.base.errors import ConfigError
from verl_agentic.cpu.inference.inference_engine import InferenceEngine
from verl_agentic.cpu.inference.request import SamplingParams
from verl_agentic.verl.extensions.server.device_weights import LocalWeights, receive_weights
from verl_agentic.verl.extensions.server.object_store import unpack
from verl_agentic.verl.extensions.server.server_features import engine_config

_DTYPES = {"float32": "float32", "fp32": "float32", "bfloat16": "bfloat16", "bf16": "bfloat16", "float16": "float16"}


class RolloutServer:
    """Serves one replica, on the device of the platform."""

    def __init__(self, *, config: Any, model_config: Any, replica_rank: int, threads: int) -> None:
        """Loads the model.

        Args:
            replica_rank: number of this replica; also shifts the seed.
            threads: of arithmetic on a CPU.

        Raises:
            ConfigError: unknown options or dtype.
            DataError: the model cannot be loaded.
        """
        torch.set_num_threads(threads)
        self._config = omega_conf_to_dataclass(config)
        model: HFModelConfig = omega_conf_to_dataclass(model_config, dataclass_type=HFModelConfig)
        self._replica_rank = replica_rank
        self._engine = make_engine(self._config, path=cast("str", model.local_path), replica_rank=replica_rank)
        self._is_rejecting = False
        self._open = asyncio.Event()
        self._open.set()

    async def ready(self) -> str:
        """Returns a name that is unique in the cluster, for verl's load balancer."""
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
            ConfigError: the request has images, videos or audio, or unknown parameters.
            PolicyError: the engine failed, with the cause.
        """
        if image_data or video_data or audio_data:
            raise ConfigError("rollout.name=agentic serves text, got images, video or audio; use rollout.name=vllm")
        if self._is_rejecting:
            return self._make_refusal()
        await self._open.wait()
        params = SamplingParams.from_mapping(with_defaults(sampling_params, self._config, len(prompt_ids)))
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

    async def load_weights(self, references: list[Any], global_steps: int | None) -> None:
        """Loads new weights from Ray's object store, at once between two steps.

        Args:
            references: object references of buckets, in a list so that Ray does not resolve them.
            global_steps: version of the weights.

        Raises:
            DataError: a name or shape does not match the model.
        """
        version = self._engine.weights_version if global_steps is None else global_steps
        await self._engine.update_weights(unpack([await reference for reference in references]), version=version)

    async def take_weights(self, weights: LocalWeights, global_steps: int | None) -> None:
        """Loads new weights from a trainer in the same process; see `receive_weights`."""
        version = self._engine.weights_version if global_steps is None else global_steps
        await self._engine.update_weights(weights.pairs, version=version)

    async def receive_weights(self, address: str, global_steps: int | None) -> None:
        """Loads new weights from a trainer on the same device, at once between two steps.

        Args:
            address: socket of the sender.
            global_steps: version of the weights.

        Raises:
            DataError: a name or shape does not match the model.
        """
        version = self._engine.weights_version if global_steps is None else global_steps
        await self._engine.receive_weights(lambda load: receive_weights(address, load), version=version)

    async def abort_all_requests(self, reject_request: bool = False) -> dict[str, Any]:
        """Ends all requests with partial results; new ones wait for `resume_generation`, or are rejected."""
        self._is_rejecting = reject_request
        self._open.clear()
        return {"aborted_count": await self._engine.abort_all(), "request_ids": []}

    async def resume_generation(self) -> None:
        """Accepts requests again."""
        await self._engine.resume()
        self._is_rejecting = False
        self._open.set()

    async def wake_up(self, tags: list[str] | None = None) -> None:
        """Does nothing: weights stay, and the cache grows on use."""

    async def sleep(self) -> None:
        """Releases the cache's memory for training."""
        await self._engine.release_memory()

    async def clear_kv_cache(self) -> None:
        """Drops all kept prefixes."""
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

    def _make_refusal(self) -> TokenOutput:
        # The client retries it here after a second, or on another server.
        version = self._engine.weights_version
        return TokenOutput(token_ids=[], log_probs=[], stop_reason="aborted", extra_fields={"global_steps": version})


def make_engine(config: Any, *, path: str, replica_rank: int) -> InferenceEngine:
    """Returns the engine that verl's `rollout` section describes.

    Raises:
        ConfigError: unknown options or dtype.
        DataError: the model cannot be loaded.
    """
    if config.dtype not in _DTYPES:
        raise ConfigError(f"rollout.dtype must be one of {sorted(_DTYPES)}, got {config.dtype!r}")
    settings = engine_config(config, replica_rank=replica_rank)
    return InferenceEngine.from_pretrained(path, settings, device=get_device_name(), dtype=_DTYPES[config.dtype])


def with_defaults(sampling_params: Mapping[str, Any], config: Any, prompt_length: int) -> dict[str, Any]:
    """Returns sampling parameters with verl's default budget."""
    remaining_tokens = config.prompt_length + config.response_length - prompt_length
    params = {("max_tokens" if name == "max_new_tokens" else name): value for name, value in sampling_params.items()}
    defaults = {"max_tokens": min(config.response_length, remaining_tokens), "ignore_eos": bool(config.ignore_eos)}
    merged = {**defaults, **params}
    return {**merged, "max_tokens": max(1, merged["max_tokens"])}
