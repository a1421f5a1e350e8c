"""Buckets of weights between two threads, through shared memory of the host in the place of a GPU's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from verl_agentic.verl.extensions.cpu import platform
from verl_agentic.verl.extensions.server import device_weights
from verl_agentic.verl.extensions.server.device_weights import open_address, receive_weights, send_weights

WEIGHTS = {f"layer.{i}": torch.full((300, 8), float(i), dtype=torch.bfloat16) for i in range(1000)}


@pytest.fixture(autouse=True)
def host_as_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives verl's module the functions of a CPU, whatever platform the tests run on."""
    transfer_module = device_weights._load_transfer()
    monkeypatch.setattr(transfer_module, "get_torch_device", lambda: platform._DEVICE)
    monkeypatch.setattr(transfer_module, "is_support_ipc", lambda: False)


def transfer(address: str, load: object) -> list[Exception]:
    """Sends WEIGHTS in buckets of 1 MB; returns the receiver's error."""
    errors: list[Exception] = []

    def receive() -> None:
        try:
            receive_weights(address, load, use_shm=True)  # type: ignore[arg-type]
        except Exception as error:
            errors.append(error)

    def send() -> None:
        asyncio.run(send_weights(iter(WEIGHTS.items()), address, bucket_mb=1, use_shm=True))

    threads = [threading.Thread(target=target, daemon=True) for target in (receive, send)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert not any(thread.is_alive() for thread in threads)
    return errors


def test_every_tensor_arrives_in_pieces(tmp_path: Path) -> None:
    got: dict[str, Tensor] = {}
    sizes: list[int] = []

    def load(weights: Iterable[tuple[str, Tensor]]) -> None:
        copies = {name: tensor.clone() for name, tensor in weights}
        sizes.append(sum(tensor.nbytes for tensor in copies.values()))
        got.update(copies)

    assert transfer(f"ipc://{tmp_path}/a.sock", load) == []
    assert len(sizes) > 3 and max(sizes) <= 1 << 20
    assert list(got) == list(WEIGHTS)
    for name, tensor in got.items():
        assert torch.equal(tensor, WEIGHTS[name])


def test_every_transfer_has_a_socket_of_its_own_that_only_this_user_reaches() -> None:
    with open_address() as address, open_address() as other:
        folder = Path(address.removeprefix("ipc://")).parent
        assert address != other and folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()


def test_an_error_ends_the_transfer_on_both_sides(tmp_path: Path) -> None:
    calls: list[int] = []

    def load(weights: Iterable[tuple[str, Tensor]]) -> None:
        calls.append(len(list(weights)))
        raise ValueError("does not fit")

    (error,) = transfer(f"ipc://{tmp_path}/b.sock", load)
    assert str(error) == "does not fit" and len(calls) == 1
