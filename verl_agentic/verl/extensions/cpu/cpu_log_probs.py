"""Patches verl: `logprobs_from_logits_v2` computes log-probs of labels in large pieces.

verl loops over single tokens, which is slow on a CPU.
"""

from __future__ import annotations

import torch
from torch import Tensor
from verl.utils import torch_functional

from verl_agentic.verl.extensions.cpu.platform import is_chosen
from verl_agentic.verl.patching import replace

_LOGITS_PER_PIECE = 1 << 24  # 64 MiB of float32


def log_probs_of_labels(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns the log-probs of `labels`, `[...]`, under `logits`, `[..., V]`, as `logprobs_from_logits_v2` does."""
    flat, chosen = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
    tokens = max(_LOGITS_PER_PIECE // flat.shape[-1], 1)
    pieces = [
        -torch.nn.functional.cross_entropy(piece, ids, reduction="none")
        for piece, ids in zip(flat.split(tokens), chosen.split(tokens), strict=True)
    ]
    return torch.cat(pieces).view(labels.shape)


if is_chosen():
    replace(torch_functional, "logprobs_from_logits_v2", log_probs_of_labels)
