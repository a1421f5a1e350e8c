"""The log-ratio of two models on sampled tokens: the implicit reward of a model that was trained with DPO or PRIME."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.cpu.inference.load_model import load_causal_lm


class LogRatio:
    """Computes `log pi_phi - log pi_ref` of tokens, which is proportional to their Q or reward.

    Paper: https://arxiv.org/abs/2409.09345 (Q of a step as beta log pi/pi_ref), https://arxiv.org/abs/2412.01981
    (outcome rewards). Deviations: without beta, which changes no order.
    """

    def __init__(self, phi: Any, reference: Any) -> None:
        """Takes two causal language models of transformers with one vocabulary.

        Raises:
            ConfigError: their vocabularies differ in size.
        """
        sizes = [model.config.vocab_size for model in (phi, reference)]
        if sizes[0] != sizes[1]:
            raise ConfigError(
                f"phi and its reference must have one vocabulary, got {sizes}; name the model that phi began as"
            )
        self._models = (phi.eval(), reference.eval())
        self._vocab_size = sizes[0]
        self._lock = asyncio.Lock()

    @classmethod
    def from_pretrained(cls, phi: Path, reference: Path, *, device: str = "cpu") -> LogRatio:
        """Loads two Hugging Face folders.

        Raises:
            ConfigError: a folder has no model. DataError: weights are missing in one.
        """
        for folder in (phi, reference):
            if not (folder / "config.json").is_file():
                raise ConfigError(
                    f"no model is in {folder}; name a Hugging Face folder, such as global_step_N/huggingface"
                )
        return cls(*(load_causal_lm(folder, dtype="auto").to(device) for folder in (phi, reference)))

    async def of(self, prompt_ids: Sequence[int], response_ids: Sequence[int], mask: Sequence[int]) -> float:
        """Returns the sum over the response's tokens with mask 1. Runs in a thread, one row at a time.

        Raises:
            DataError: an id is not of the vocabulary, or the sum is not finite.
        """
        ids = [*prompt_ids, *response_ids]
        if not 0 <= min(ids) <= max(ids) < self._vocab_size:
            raise DataError(f"phi has {self._vocab_size} tokens, got ids up to {max(ids)}; use the policy's tokenizer")
        async with self._lock:
            value = await asyncio.to_thread(self._sum_log_ratio, ids, len(prompt_ids), mask)
        if not math.isfinite(value):
            raise DataError(f"a log-ratio must be finite, got {value}; phi or its reference has diverged")
        return value

    def _sum_log_ratio(self, ids: Sequence[int], num_prompt: int, mask: Sequence[int]) -> float:
        phi, reference = (_log_probs(model, ids) for model in self._models)
        ratio_R = (phi - reference)[num_prompt - 1 :]
        return float(ratio_R[torch.tensor(mask, dtype=torch.bool)].sum())


@torch.inference_mode()
def _log_probs(model: Any, ids: Sequence[int]) -> Tensor:
    """Returns `[L - 1]` float32: the log-prob of every token but the first."""
    ids_L = torch.tensor(ids, device=model.device)
    logits = model(input_ids=ids_L[None]).logits[0, :-1].float()
    return logits.log_softmax(-1).gather(-1, ids_L[1:, None]).squeeze(-1).cpu()
