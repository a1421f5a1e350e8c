"""What the CPU of this machine can compute."""

from __future__ import annotations

_BFLOAT16 = ("amx_bf16", "avx512_bf16", "bf16")
"""Names of torch: of x86, and of ARM."""


def has_bfloat16() -> bool:
    """Returns whether it has instructions for products in bfloat16; False where torch is too old to tell."""
    import torch

    read = getattr(torch.cpu, "get_capabilities", dict)
    return any(read().get(name) for name in _BFLOAT16)
