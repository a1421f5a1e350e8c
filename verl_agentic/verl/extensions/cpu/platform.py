"""verl's platform `cpu`, chosen by `VERL_PLATFORM=cpu`."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import psutil
import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry


class _CpuDevice(ModuleType):
    """Functions of `torch.<device>` that verl expects and `torch.cpu` lacks."""

    def __init__(self) -> None:
        super().__init__("verl_agentic_cpu_device")

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def current_device(self) -> str:
        return "cpu"

    def set_device(self, device: Any) -> None:
        """There is one device."""

    def synchronize(self, device: Any = None) -> None:
        """Work on a CPU is done when its call returns."""

    def empty_cache(self) -> None:
        """The C allocator keeps no cache that verl should empty."""

    def ipc_collect(self) -> None:
        """Nothing is shared by device handles."""

    def memory_allocated(self, device: Any = None) -> int:
        return psutil.Process().memory_info().rss

    memory_reserved = max_memory_allocated = max_memory_reserved = memory_allocated

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        """The operating system keeps the peak."""

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        memory = psutil.virtual_memory()
        return memory.available, memory.total

    def set_per_process_memory_fraction(self, fraction: float, device: Any = None) -> None:
        """A process may use all memory."""

    def get_device_name(self, device: Any = None) -> str:
        return "CPU"

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        torch.set_rng_state(state)

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed


_DEVICE = _CpuDevice()


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    """Trains and generates on the CPU; Ray's GPUs are logical ones, one per rank."""

    @property
    def device_name(self) -> str:
        return "cpu"

    @property
    def vendor_name(self) -> str:
        return "cpu"

    @property
    def device_module(self) -> ModuleType:
        return _DEVICE

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        # Never chosen automatically, because verl also probes in processes without visible devices, and a GPU run must
        # not become a CPU run.
        return False

    def current_device(self) -> Any:
        # verl uses it as the device of tensors; an index would mean an accelerator.
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        """There is one device."""

    def synchronize(self, device_index: int | None = None) -> None:
        """Work on a CPU is done when its call returns."""

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        """The settings are of CUDA's allocator."""

    def empty_cache(self) -> None:
        """The C allocator keeps no cache that verl should empty."""

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        """No device profiler."""

    def profiler_stop(self) -> None:
        """No device profiler."""

    def ray_resource_name(self) -> str:
        # verl counts "GPU" or "NPU" before it builds its resource pools; logical ones are enough.
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def rollout_env_vars(self) -> dict[str, str]:
        # For verl's vLLM server; `rollout.name=agentic` does not take them.
        defaults = {
            # vLLM compiles functions of its sampler even in eager mode, which takes a minute on two cores.
            "TORCH_COMPILE_DISABLE": "1",
            # vLLM's own binding leaves a core to other processes: one of two.
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_NO_USAGE_STATS": "1",
        }
        return {name: os.environ.get(name, value) for name, value in defaults.items()}

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> Any:
        return None


def is_chosen() -> bool:
    """Returns whether this process runs on the platform `cpu`."""
    return os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu"


if is_chosen():
    # What is imported stays. Collections would visit it again and again, which is a tenth of the time of a start.
    gc.freeze()
