"""Looks up whether the CPU of this machine has instructions for bfloat16."""

from __future__ import annotations

_NAMES = ("amx_bf16", "avx512_bf16", "bf16")
"""In torch: of x86, and of ARM."""


def has_bfloat16() -> bool:
    """Returns whether it has instructions for products in bfloat16; False where torch is too old to tell."""
    import torch

    capabilities = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name) for name in _NAMES)
