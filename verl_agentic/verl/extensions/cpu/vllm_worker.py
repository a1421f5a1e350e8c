"""Patches vLLM: `dispatch_cpu_unquantized_gemm` keeps the weights of a linear layer beside their packed copy.

vLLM's CPU build packs the weights for its kernels when a model is loaded, and drops the originals. Then no new weights
can be loaded. With the originals in place, verl's weight update works as it is: it loads each bucket and then lets vLLM
process the weights, which packs them again. Linear weights take twice the memory.
"""

from __future__ import annotations

from typing import Any

from vllm.model_executor.layers import utils as layers  # pyright: ignore[reportMissingImports]

from verl_agentic.verl.extensions.cpu.platform import is_chosen
from verl_agentic.verl.patching import wrap


def _pack_and_keep(pack: Any, layer: Any, remove_weight: bool = False) -> None:
    pack(layer, remove_weight=False)


if is_chosen():
    wrap(layers, "dispatch_cpu_unquantized_gemm")(_pack_and_keep)
