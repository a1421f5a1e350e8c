"""The rules of the pretended device: what it refuses, and for what the host waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from pretended_device import DEVICE, Pretended, pretended_device, put, take

Tensor = torch.Tensor
X = torch.arange(6.0).reshape(2, 3)


@torch.inference_mode()
def inferred(x: Tensor) -> Tensor:
    return 2 * x


def filled(x: Tensor) -> Tensor:
    x = x.clone()
    x[x > 1] = 0.0
    return x


REFUSED: dict[str, Callable[[Tensor], Any]] = {
    "a tensor of the host": lambda x: x * torch.ones(3),
    "stacking with a number of the host": lambda x: torch.stack([x[0, 0], torch.tensor(1.0)]),
    "positions of the host": lambda x: torch.where(x > 1, x, torch.arange(3.0)),
    "an index of the device in the host": lambda x: torch.ones(9)[x.long()],
    "a value of the host at indices": lambda x: x.clone().index_put((torch.tensor([0, 1]),), torch.ones(2, 3)),
    "numpy": lambda x: x.numpy(),
    "an array": lambda x: np.asarray(x),
    "pinned memory of the device": lambda x: x.pin_memory(),
    "a generator of the host": lambda x: torch.rand(3, device=DEVICE, generator=torch.Generator()),
    "noise of the host's generator": lambda x: torch.empty_like(x).exponential_(generator=torch.Generator()),
}
WAITS: dict[str, Callable[[Tensor], Any]] = {
    "item": lambda x: x.sum().item(),
    "float": lambda x: float(x.sum()),
    "bool": lambda x: bool((x > 0).all()),
    "condition": lambda x: 1 if (x > 0).all() else 0,
    "tolist": lambda x: x.tolist(),
    "text": lambda x: f"{x.sum():.2f}",
    "to the host": lambda x: x.cpu(),
    "copied to the host": lambda x: torch.zeros(2, 3).copy_(x),
    "equal": lambda x: torch.equal(x, x),
    "close": lambda x: torch.allclose(x, x),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 1],
    "unique": lambda x: torch.unique(x),
    "repeated": lambda x: torch.repeat_interleave(x[0], put(torch.tensor([1, 2, 3]))),
    "index of the host": lambda x: x[:, torch.arange(2)],
    "list as index": lambda x: x[[0, 1]],
    "tensor of numbers": lambda x: torch.tensor([1.0, 2.0, 3.0], device=x.device) + x,
    "as tensor": lambda x: torch.as_tensor([1.0, 2.0, 3.0], device=x.device) + x,
    "to the device": lambda x: torch.ones(3).to(DEVICE) + x,
    "number of the host to choose": lambda x: torch.where(x > 1, x, torch.tensor(0.0)),
    "as many as": lambda x: torch.arange(x.sum().long()),
}
FREE: dict[str, Callable[[Tensor], Any]] = {
    "arithmetic": lambda x: (2 * x + x.sum()).softmax(dim=-1),
    "number of the host": lambda x: x * torch.tensor(2.0),
    "number to choose": lambda x: torch.where(x > 1, x, 0.0),
    "filled": filled,
    "inference mode": inferred,
    "index of the device": lambda x: x[:, torch.arange(2, device=x.device)],
    "made on the device": lambda x: torch.zeros(3, device=x.device) + x,
    "pinned": lambda x: torch.ones(3).pin_memory().to(DEVICE, non_blocking=True) + x,
    "repeated to a size": lambda x: torch.repeat_interleave(x[0], put(torch.tensor([1, 2, 3])), output_size=6),
    "generator": lambda x: torch.rand(2, device=DEVICE, generator=torch.Generator(device=DEVICE).manual_seed(0)),
    "shape": lambda x: x.reshape(len(x), -1).shape,
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cuda_refuses_is_refused(name: str) -> None:
    with pretended_device(), pytest.raises((RuntimeError, TypeError), match=r"device|CPU"):
        REFUSED[name](put(X))


@pytest.mark.parametrize("name", WAITS)
def test_what_waits_is_counted(name: str) -> None:
    with pretended_device() as waits:
        WAITS[name](put(X))
    assert sum(waits.values()) == 1, dict(waits)
    assert "test_pretended_device.py" in next(iter(waits))


@pytest.mark.parametrize("name", FREE)
def test_what_runs_on_the_device_is_free(name: str) -> None:
    with pretended_device() as waits:
        result = FREE[name](put(X))
        assert isinstance(result, Pretended | torch.Size)
    assert not waits


def test_results_and_gradients_are_those_of_the_cpu() -> None:
    def run(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        y = ((x * scale)[:, 1:].exp() / scale[1:]).cumsum(dim=-1)
        return y.detach(), torch.autograd.grad(y.square().sum(), scale)[0]

    scale = torch.tensor([0.3, 0.7, 0.2], requires_grad=True)
    with pretended_device():
        got = take(run(*put((X, scale))))
    torch.testing.assert_close(got, run(X, scale))


def test_the_device_ends_with_the_block() -> None:
    before = torch.tensor, torch.as_tensor, torch.Generator, torch._C._InferenceMode, torch.Tensor.pin_memory
    with pytest.raises(ValueError, match="inside"), pretended_device():
        raise ValueError("inside")
    assert before == (torch.tensor, torch.as_tensor, torch.Generator, torch._C._InferenceMode, torch.Tensor.pin_memory)
    assert torch.tensor([1.0], device=DEVICE).is_meta
