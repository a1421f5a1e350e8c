"""Control: vLLM's CPU build packs its weights for its kernels once and keeps that copy, whatever is loaded afterwards.

verl imports this file in every process where `VERL_USE_EXTERNAL_MODULES` names it.
"""

from __future__ import annotations

from typing import Any

from verl_agentic.verl import import_hooks

_KEPT = 2
"""The weights of the start, and those of the first update: the run begins with the right ones."""


def _pack_no_more() -> None:
    from vllm.model_executor.layers import utils as layers  # pyright: ignore[reportMissingImports]

    pack = layers.dispatch_cpu_unquantized_gemm

    def pack_first(layer: Any, remove_weight: bool = False) -> None:
        layer.times_packed = getattr(layer, "times_packed", 0) + 1
        if layer.times_packed <= _KEPT:
            pack(layer, remove_weight=False)

    layers.dispatch_cpu_unquantized_gemm = pack_first


import_hooks.when_imported("vllm.model_executor.layers.utils", _pack_no_more)
