"""Process groups on a CPU: verl 0.9 asks for `cpu:gloo,<device>:<backend>`, which names the cpu twice."""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed
from verl.utils import distributed

from verl_agentic.adapters.cpu.platform import is_chosen

BACKEND = "cpu:gloo"


def _patch() -> None:
    for_ray, for_torchrun = distributed.initialize_global_process_group_ray, distributed.initialize_global_process_group

    @functools.wraps(for_ray)
    def initialize_ray(timeout_second: int | None = None, backend: str | None = None) -> Any:
        return for_ray(timeout_second=timeout_second, backend=backend or BACKEND)

    @functools.wraps(for_torchrun)
    def initialize(timeout_second: int = 36000) -> Any:
        init_process_group = torch.distributed.init_process_group
        try:
            torch.distributed.init_process_group = lambda *args, **kwargs: init_process_group(
                *args, **{**kwargs, "backend": BACKEND}
            )
            return for_torchrun(timeout_second)
        finally:
            torch.distributed.init_process_group = init_process_group

    distributed.initialize_global_process_group_ray = initialize_ray
    distributed.initialize_global_process_group = initialize


if is_chosen():
    _patch()
