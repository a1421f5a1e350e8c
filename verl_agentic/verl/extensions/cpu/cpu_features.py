"""The adapters of the CPU platform."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from typing import Any

from omegaconf import OmegaConf

from verl_agentic.base.errors import ConfigError, MissingDependencyError
from verl_agentic.verl.features import Adapter, Features, is_installed
from verl_agentic.verl.sections import ROLLOUT, has

THREADS = "threads"
"""The address of Ray that makes a run one process."""
_ADDRESS = "ray_kwargs.ray_init.address"


def is_cpu_chosen(_: Any = None) -> bool:
    """Tells whether the environment chooses the platform cpu."""
    # Not asked of adapters.cpu.platform, which may be what has failed.
    return os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu"


def check_platform(config: Any) -> None:
    """Refuses a device that is not that of the platform."""
    device = OmegaConf.select(config, "trainer.device")
    chosen = os.environ.get("VERL_PLATFORM", "")
    if device == "cpu" and not is_cpu_chosen():
        raise ConfigError(
            f"trainer.device=cpu needs the platform cpu, got VERL_PLATFORM={chosen!r}; export VERL_PLATFORM=cpu"
        )
    if is_cpu_chosen() and device != "cpu":
        raise ConfigError(
            f"VERL_PLATFORM=cpu needs trainer.device=cpu, got {device!r}; put agentic/cpu behind the recipe's defaults"
        )


def choose_threads(config: Any) -> Iterator[tuple[str, Any, str]]:
    """Yields the address of a run in one process, where one process can do what the run needs."""
    select = functools.partial(OmegaConf.select, config)
    ranks = (select("trainer.nnodes") or 1) * (select("trainer.n_gpus_per_node") or 1)
    needs_ray = (
        select("reward.reward_model.enable") or select("distillation.enabled")  # models on servers of their own
        or select("ray_kwargs.timeline_json_file")
        or os.environ.get("RAY_ADDRESS", "local") not in ("", "local")  # a cluster that runs already
    )  # fmt: skip
    has_own_device = is_cpu_chosen() or (
        select("trainer.device") == "cuda" and not select(f"{ROLLOUT}.nnodes")  # else servers have GPUs of their own
    )
    is_one = ranks == 1 and has_own_device and has(config, f"{ROLLOUT}.name", "agentic") and not needs_ray
    if is_one and select("ray_kwargs.ray_init") is not None and select(_ADDRESS) is None:
        yield _ADDRESS, THREADS, "trainer.n_gpus_per_node"


def has_threads(config: Any) -> bool:
    """Tells whether a run is one process."""
    return has(config, _ADDRESS, THREADS)


def is_vllm_on_cpu(config: Any) -> bool:
    """Tells whether a run uses verl's rollout on vLLM, on a CPU."""
    return is_cpu_chosen() and has(config, f"{ROLLOUT}.name", "vllm")


def require_vllm(device: str = "cpu") -> None:
    """Raises a MissingDependencyError if vLLM is not installed."""
    if not is_installed("vllm"):
        advice = {
            "cpu": "run `make vllm` in a checkout of verl-agentic, and start the command from .venv-vllm/bin",
            "cuda": "pip install 'verl[vllm]'",
        }
        raise MissingDependencyError(f"this needs vLLM, got the environment {sys.prefix} without it; {advice[device]}")


def check_vllm(config: Any) -> None:
    """Refuses verl's rollout on vLLM, on a CPU, where vLLM is not installed."""
    if is_vllm_on_cpu(config):
        require_vllm()


FEATURES = Features(
    choices=(choose_threads,),
    checks=(check_platform, check_vllm),
    adapters=(
        Adapter(
            module="extensions.cpu.platform",
            needs="verl.plugin.platform",
            gives="platform cpu",
            chosen_by="environment variable VERL_PLATFORM=cpu",
            demanded_by=is_cpu_chosen,
        ),
        Adapter(
            module="extensions.cpu.console",
            needs="verl.plugin.platform",
            gives="a readable console",
            chosen_by="VERL_PLATFORM=cpu",
        ),
        Adapter(
            module="extensions.cpu.warm.warm_workers",
            needs="verl.utils.device",
            gives="Ray workers that start in a moment",
            chosen_by="VERL_PLATFORM=cpu, on Linux; VERL_AGENTIC_WARM_WORKERS=0 turns it off",
        ),
        Adapter(
            module="extensions.cpu.threads.one_process",
            needs="verl.single_controller.ray.base",
            gives="actors as threads of one process",
            chosen_by=f"VERL_PLATFORM=cpu and one rank; {_ADDRESS}=local turns it off",
            demanded_by=has_threads,
        ),
        Adapter(
            module="extensions.cpu.distributed",
            needs="verl.utils.distributed",
            gives="process groups over gloo",
            chosen_by="VERL_PLATFORM=cpu",
            demanded_by=is_cpu_chosen,
        ),
        Adapter(
            module="extensions.cpu.cpu_log_probs",
            needs="verl.utils.torch_functional",
            gives="log-probs in large pieces",
            chosen_by="VERL_PLATFORM=cpu",
        ),
        Adapter(
            module="extensions.cpu.cpu_engine",
            needs="verl.workers.engine",
            gives="FSDP2 engines for device cpu",
            chosen_by="VERL_PLATFORM=cpu and actor.strategy=fsdp2",
            demanded_by=is_cpu_chosen,
        ),
        Adapter(
            module="extensions.cpu.vllm_package",
            needs="verl.plugin.platform",
            gives="vLLM's CPU build under the name that verl asks for",
            chosen_by=f"VERL_PLATFORM=cpu and {ROLLOUT}.name=vllm",
            demanded_by=is_vllm_on_cpu,
        ),
        Adapter(
            module="extensions.cpu.vllm_worker",
            needs="vllm.model_executor.layers.utils",
            gives="weight updates of vLLM's CPU build",
            is_used=is_cpu_chosen,
            chosen_by=f"VERL_PLATFORM=cpu and {ROLLOUT}.name=vllm",
        ),
    ),
)
