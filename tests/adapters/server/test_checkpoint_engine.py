"""Weights pass from a trainer to rollout workers through the object store, bit for bit."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator

import pytest
import ray
import torch

from verl_agentic.verl.extensions.server.checkpoint_engine import ObjectStoreCheckpointEngine

WEIGHTS = {
    "wide": torch.randn(64, 33),
    "half": torch.randn(7).to(torch.bfloat16),
    "scalar": torch.tensor(3.5),
    "whole": torch.arange(5),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    # Not below pytest's own folders: Ray's sockets do not fit into long paths.
    with tempfile.TemporaryDirectory(prefix="va", ignore_cleanup_errors=True) as folder:
        ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", _temp_dir=folder)
        yield
        ray.shutdown()


@pytest.mark.slow
# pytest takes back the filter that the adapter sets: such tensors are for reading.
@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
async def test_every_worker_gets_the_masters_weights_again_and_again(cluster: None) -> None:
    master = ObjectStoreCheckpointEngine(bucket_size=1_000, is_master=True)
    other_rank, worker = ObjectStoreCheckpointEngine(bucket_size=1_000), ObjectStoreCheckpointEngine(bucket_size=1_000)
    metadata = [engine.prepare() for engine in (other_rank, master)]
    trainer, rollout = ObjectStoreCheckpointEngine.build_topology(2, 1, metadata)
    assert (len(trainer["mailbox"]), len(rollout["mailbox"])) == (2, 1)
    for engine, mailbox in ((master, trainer["mailbox"][0]), (other_rank, trainer["mailbox"][1])):
        engine.init_process_group(mailbox)
    worker.init_process_group(rollout["mailbox"][0])
    for step in range(2):
        sent = {name: weight + step for name, weight in WEIGHTS.items()}
        seen_by_other: list[str] = []
        waiting = asyncio.create_task(_receive(worker))
        await other_rank.send_weights((seen_by_other.append(name) or (name, w)) for name, w in sent.items())
        await master.send_weights(iter(sent.items()))
        received = await waiting
        assert seen_by_other == list(sent), "gathering a sharded weight takes all ranks"
        assert list(received) == list(sent)
        for name, weight in sent.items():
            assert received[name].dtype == weight.dtype and torch.equal(received[name], weight)
        master.finalize()


async def _receive(engine: ObjectStoreCheckpointEngine) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() async for name, tensor in engine.receive_weights()}
