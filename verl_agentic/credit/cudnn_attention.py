"""Keeps torch's attention away from cuDNN's kernels.

torch 2.11 and newer prefers them on Hopper and Blackwell. With cuDNN 9.19 to 9.26, gradients of padded rows became NaN
on H100 and H200 (https://github.com/pytorch/pytorch/issues/196678, https://github.com/huggingface/trl/issues/7181).
Generation was wrong on B200 (https://github.com/pytorch/pytorch/issues/193893).
"""

from __future__ import annotations

import os

VARIABLE = "TORCH_CUDNN_SDPA_DEPRIORITIZED"
"""torch reads it at the first attention of a process: `1` puts cuDNN's kernels behind all others."""


def avoid_cudnn_attention() -> None:
    """Puts cuDNN's kernels behind all others in this process, unless its environment chooses."""
    os.environ.setdefault(VARIABLE, "1")
