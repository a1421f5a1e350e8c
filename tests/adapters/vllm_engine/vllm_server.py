"""verl's vLLM server as a Ray actor without a trainer: its weights, its control calls, and a client that finds it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ray
import torch
from verl.plugin.platform import get_platform
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient
from verl.workers.rollout.replica import RolloutMode, TokenOutput

from verl_agentic.verl.extensions.preflight.compose import compose

_RUN = """
hydra: {searchpath: [pkg://verl_agentic.config]}
defaults: [ppo_trainer, agentic/cpu, agentic/cpu_vllm, _self_]
"""


class Server:
    """One server, and what a trainer does with it."""

    def __init__(self, actor: Any, config: Any) -> None:
        self._actor = actor
        self.config = config
        self.outputs: list[TokenOutput] = []
        """Answers of the server, before the client joins the parts of an aborted request."""

    async def update(self, weights: Mapping[str, torch.Tensor], *, version: int) -> None:
        """Sends weights in the way of verl's rollout worker."""
        from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightSender

        job = ray.get_runtime_context().get_job_id()
        handle = f"ipc:///tmp/rl-colocate-zmq-{job}-replica-0-rank-0.sock"
        receiving = self._actor.collective_rpc.remote("update_weights_from_ipc", kwargs={"use_shm": True})
        # One megabyte: the tiny model takes several buckets.
        sender = BucketedWeightSender(zmq_handle=handle, bucket_size_mb=1, use_shm=True)
        await sender.async_send_weights(iter(list(weights.items())))
        await receiving
        await self._actor.clear_kv_cache.remote()
        await self._actor.set_global_steps.remote(version)

    async def abort(self) -> None:
        """Aborts all requests; later ones wait."""
        await self._actor.abort_all_requests.remote()

    async def resume(self) -> None:
        """Accepts requests again."""
        await self._actor.resume_generation.remote()

    def client(self) -> FullyAsyncLLMServerClient:
        """Returns verl's client of partial rollouts."""
        server = self

        class Client(FullyAsyncLLMServerClient):
            async def _acquire_server(self, request_id: str, **extra: Any) -> tuple[str, Any]:
                return "one", SimpleNamespace(generate=SimpleNamespace(remote=server._generate))

            def _release_server(self, server_id: str, request_id: str | None = None) -> None:
                """Nothing was acquired."""

        return Client(self.config)

    async def _generate(self, **request: Any) -> TokenOutput:
        output = await self._actor.generate.remote(**request)
        self.outputs.append(output)
        return output


@contextlib.contextmanager
def serving(model: Path, *overrides: str) -> Iterator[Server]:
    """Starts a server with dummy weights, as verl does; it ends with the block."""
    assert os.environ.get("VERL_PLATFORM") == "cpu", "export VERL_PLATFORM=cpu: verl chooses its platform once"
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "run.yaml").write_text(_RUN)
        settings = [f"actor_rollout_ref.model.path={model}", *overrides]
        config = compose(Path(folder), "run", settings).config
    # Ray's sockets do not fit into the long paths of pytest's folders.
    with tempfile.TemporaryDirectory(prefix="va", ignore_cleanup_errors=True) as folder:
        ray.init(num_cpus=8, num_gpus=1, include_dashboard=False, log_to_driver=False, _temp_dir=folder)
        try:
            actor: Any = (
                ray.remote(vLLMHttpServer)
                .options(max_concurrency=64, runtime_env={"env_vars": get_platform().rollout_env_vars()})
                .remote(
                    config=config.actor_rollout_ref.rollout,
                    model_config=config.actor_rollout_ref.model,
                    rollout_mode=RolloutMode.STANDALONE,
                    workers=[],
                    replica_rank=0,
                    node_rank=0,
                    gpus_per_node=1,
                    nnodes=1,
                    cuda_visible_devices="",
                )
            )
            address, port, rpc_port = ray.get(actor.get_master_address.remote())
            ray.get(actor.launch_server.remote(master_address=address, master_port=port, dp_rpc_port=rpc_port))
            yield Server(actor, config)
        finally:
            ray.shutdown()
