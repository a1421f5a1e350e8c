"""Embeds texts with a BERT-like model of sentence-transformers: mean or first token, then length 1.

Paper: https://arxiv.org/abs/1908.10084 (Sentence-BERT).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from verl_agentic.base.errors import ConfigError, DataError, boundary

_BATCH = 32
_MAX_TOKENS = 256
"""For folders without `sentence_bert_config.json`."""
_POOLINGS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "first"}
"""Key in the folder's pooling config -> how tokens become one vector."""


class TextEmbedder:
    """Turns texts into vectors of length 1, whose product is the similarity of the texts. Computes on the CPU."""

    def __init__(self, folder: Path) -> None:
        """Loads a folder in the layout of sentence-transformers; without its files, tokens are averaged.

        Raises:
            ConfigError: the model pools in another way.
            DataError: the model cannot be loaded.
        """
        from transformers import AutoModel, AutoTokenizer

        self._pooling = _read_pooling(folder)
        self._max_tokens = int(_read_json(folder / "sentence_bert_config.json").get("max_seq_length", _MAX_TOKENS))
        with boundary(DataError, f"loading the embedding model {folder}"):
            self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
            self._model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Returns one row of float32 per text; texts of similar length share a batch."""
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        vectors = np.empty((len(texts), self._model.config.hidden_size), dtype=np.float32)
        for start in range(0, len(order), _BATCH):
            places = order[start : start + _BATCH]
            vectors[places] = self._embed_batch([texts[place] for place in places])
        return vectors

    @torch.inference_mode()
    def _embed_batch(self, texts: list[str]) -> np.ndarray:
        inputs = self._tokenizer(texts, padding=True, truncation=True, max_length=self._max_tokens, return_tensors="pt")
        hidden_BTH = self._model(**inputs).last_hidden_state
        if self._pooling == "first":
            pooled_BH = hidden_BTH[:, 0]
        else:
            mask_BT1 = inputs["attention_mask"].unsqueeze(-1)
            pooled_BH = (hidden_BTH * mask_BT1).sum(1) / mask_BT1.sum(1)
        return torch.nn.functional.normalize(pooled_BH, dim=-1).numpy()


def hash_model(folder: Path) -> str:
    """Returns a hash of a model's configs, tokenizer and weights: 16 hexadecimal digits."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted([*folder.rglob("*.json"), *folder.glob("*.safetensors"), *folder.glob("*.bin")]):
        digest.update(f"{path.relative_to(folder)}:{path.stat().st_size};".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _read_pooling(folder: Path) -> str:
    config = _read_json(folder / "1_Pooling" / "config.json") or {"pooling_mode_mean_tokens": True}
    modes = [mode for mode, is_used in config.items() if mode.startswith("pooling_mode_") and is_used]
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        raise ConfigError(
            f"an embedding model pools by one of {sorted(_POOLINGS)}, got {modes} in {folder}; take another model"
        )
    return _POOLINGS[modes[0]]


def _read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
