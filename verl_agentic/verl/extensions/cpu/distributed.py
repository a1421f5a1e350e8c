"""Patches verl: `initialize_global_process_group` and `initialize_global_process_group_ray` use gloo on a CPU.

verl 0.9 uses `cpu:gloo,<device>:<backend>`, which names the cpu twice.
"""

from __future__ import annotations

from typing import Any

import torch.distributed
from verl.utils import distributed

from verl_agentic.verl.extensions.cpu.platform import is_chosen
from verl_agentic.verl.patching import wrap

BACKEND = "cpu:gloo"


def _initialize_for_ray(initialize: Any, timeout_second: int | None = None, backend: str | None = None) -> Any:
    return initialize(timeout_second=timeout_second, backend=backend or BACKEND)


def _initialize_for_torchrun(initialize: Any, timeout_second: int = 36000) -> Any:
    init_process_group = torch.distributed.init_process_group
    try:
        torch.distributed.init_process_group = lambda *args, **kwargs: init_process_group(
            *args, **{**kwargs, "backend": BACKEND}
        )
        return initialize(timeout_second)
    finally:
        torch.distributed.init_process_group = init_process_group


if is_chosen():
    wrap(distributed, "initialize_global_process_group_ray")(_initialize_for_ray)
    wrap(distributed, "initialize_global_process_group")(_initialize_for_torchrun)
