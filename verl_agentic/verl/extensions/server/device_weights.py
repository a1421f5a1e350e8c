"""Weights for the server on the trainer's own device: in its process, or through verl's buckets of CUDA IPC."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import verl
from torch import Tensor
from verl.utils.device import get_device_id, get_device_name, is_support_ipc

from verl_agentic.verl.extensions.cpu.threads.thread_objects import Shared


@dataclass(frozen=True)
class LocalWeights(Shared):
    """Weights for a server that is a thread of the trainer's process; nothing is copied on the way."""

    pairs: list[tuple[str, Tensor]]


def can_share_device() -> bool:
    """Returns whether two processes can share memory of this device."""
    return is_support_ipc()


@contextmanager
def open_address() -> Iterator[str]:
    """Yields a new socket for one transfer, which only this user reaches and no other run on the machine has."""
    with tempfile.TemporaryDirectory(prefix="agentic-weights-") as folder:
        yield f"ipc://{folder}/socket"


async def send_weights(weights: Any, address: str, *, bucket_mb: int, use_shm: bool = False) -> None:
    """Sends (asynchronous) pairs of name and tensor; waits until the server has copied each bucket.

    Args:
        address: of `open_address`.
        bucket_mb: memory of the shared buffer.
        use_shm: shares memory of the host instead.
    """
    sender = _load_transfer().BucketedWeightSender(zmq_handle=address, bucket_size_mb=bucket_mb, use_shm=use_shm)
    await sender.async_send_weights(weights)


def receive_weights(
    address: str, load: Callable[[Iterable[tuple[str, Tensor]]], None], *, use_shm: bool = False
) -> None:
    """Passes each bucket of the sender to `load`; the tensors are only valid during the call.

    Raises:
        Exception: the first error of `load`, after the last bucket, because the sender waits for every answer.
    """
    device = torch.device("cpu") if use_shm else torch.device(get_device_name(), get_device_id())
    errors: list[Exception] = []

    def load_bucket(bucket: list[tuple[str, Tensor]], _is_last: bool) -> None:
        if errors:
            return
        try:
            load(bucket)
        except Exception as error:
            # The frames of the traceback hold tensors of the buffer, which could then not be given back.
            errors.append(error.with_traceback(None))

    _load_transfer().BucketedWeightReceiver(zmq_handle=address, device=device, use_shm=use_shm).receive_weights(
        load_bucket
    )
    if errors:
        raise errors[0]


@cache
def _load_transfer() -> ModuleType:
    # By its file: the module needs no vLLM, but importing its package does.
    path = Path(verl.__file__).parent / "workers" / "rollout" / "vllm_rollout" / "bucketed_weight_transfer.py"
    spec = importlib.util.spec_from_file_location("verl_agentic_bucketed_weight_transfer", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
