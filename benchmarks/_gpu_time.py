"""Time on a device that works in the background."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from _report import median


def wait_for(device: str) -> None:
    """Waits until the device has done its work."""
    if device == "cuda":
        torch.cuda.synchronize()


def median_s(device: str, work: Callable[[], Any], *, repeats: int) -> float:
    """Returns the median seconds of a piece of work. It runs once more before, to warm up."""
    seconds = []
    for _ in range(repeats + 1):
        wait_for(device)
        begin = time.perf_counter()
        work()
        wait_for(device)
        seconds.append(time.perf_counter() - begin)
    return median(seconds[1:])
