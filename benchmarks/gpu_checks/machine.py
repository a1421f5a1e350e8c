"""The check `machine`: versions, the rates that bound all other figures, and `verl-agentic doctor`."""

from __future__ import annotations

import json
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from _gpu_check import Check
from _gpu_time import median_s
from _gpu_training import COMMAND
from _report import machine

_PACKAGES = ("ray", "tensordict", "triton", "vllm", "flash-attn")


def run(check: Check) -> None:
    check.note({**machine(), **{package: _find_version(package) for package in _PACKAGES}})
    if check.is_gpu:
        properties = torch.cuda.get_device_properties(0)
        check.note(
            {
                "gpu": properties.name,
                "gpu_gib": round(properties.total_memory / 2**30, 1),
                "capability": f"{properties.major}.{properties.minor}",
            }
        )
    check.note({"bf16_tflop_per_s": measure_tflop_per_s(check), "copy_tb_per_s": _measure_tb_per_s(check)})
    begin = time.perf_counter()
    done = subprocess.run([*COMMAND, "doctor", "--json"], stdout=subprocess.PIPE, text=True)
    seconds = round(time.perf_counter() - begin, 1)
    findings = json.loads(done.stdout[done.stdout.index("{") :])["checks"]
    check.note({f"doctor, {one['name']}": f"{one['status']}: {one['found']}" for one in findings})
    check.judge("failures of doctor", sum(one["status"] == "fail" for one in findings), max_value=0)
    check.judge("seconds of doctor", seconds, max_value=10, only_gpu=True)


def measure_tflop_per_s(check: Check) -> float:
    """Returns the rate of products of large bfloat16 matrices."""
    side = 8192 if check.is_gpu else 512
    a, b = (torch.randn(side, side, device=check.device, dtype=torch.bfloat16) for _ in range(2))
    seconds = median_s(check.device, lambda: [a @ b for _ in range(5)], repeats=3) / 5
    return _round(2 * side**3 / seconds / 1e12)


def _measure_tb_per_s(check: Check) -> float:
    """Returns the rate of reading and writing memory, both counted."""
    source = torch.ones(2**30 if check.is_gpu else 2**24, device=check.device)
    target = torch.empty_like(source)
    return _round(2 * source.nbytes / median_s(check.device, lambda: target.copy_(source), repeats=3) / 1e12)


def _round(value: float) -> float:
    return float(f"{value:.4g}")


def _find_version(package: str) -> Any:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
