"""Random models of the checks of `gpu.py`, and their log-probs by transformers."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from _gpu_check import Check

from verl_agentic.cpu.inference.load_model import load_causal_lm
from verl_agentic.cpu.tiny_model import make_tiny_model

BOUNDS = {"float32": 1e-4, "bfloat16": 0.25}
"""Type of the weights -> largest difference of a log-prob that rounding explains."""
_NUM_TEXT_TOKENS = 256


def make_model(check: Check, name: str, *, preset: str = "75m", seed: int = 0) -> Path:
    """Writes a random model, on a CPU a tiny one; returns its folder."""
    folder = check.folder / name
    parameters = make_tiny_model(folder, preset=preset if check.is_gpu else "0.5m", seed=seed)
    check.note({f"parameters of {name}": parameters})
    return folder


def make_random_ids(rng: random.Random, count: int) -> list[int]:
    """Returns tokens of texts, none that ends a turn."""
    return [rng.randrange(_NUM_TEXT_TOKENS) for _ in range(count)]


def load_reference(folder: Path, device: str, dtype: str) -> Any:
    """Returns the model of transformers."""
    return load_causal_lm(folder, dtype=getattr(torch, dtype), attn_implementation="sdpa").eval().to(device)


@torch.inference_mode()
def compute_log_probs(model: Any, prompt: list[int], answer: list[int]) -> torch.Tensor:
    """Returns `[T]` float32 on the CPU: log-probs of the tokens of an answer."""
    ids = torch.tensor([prompt + answer], device=model.device)
    logits = model(input_ids=ids).logits[0, len(prompt) - 1 : -1].float()
    return logits.log_softmax(-1).gather(1, ids[0, len(prompt) :, None])[:, 0].cpu()
