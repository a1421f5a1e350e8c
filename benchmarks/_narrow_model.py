"""A deep, narrow model with a vocabulary of real size: all of its cost is what each layer and each logit costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from verl_agentic.cpu.tiny_model import make_tiny_tokenizer

VOCAB_SIZE = 49_152  # SmolLM2's


def make_narrow_model(folder: Path, *, num_layers: int = 30) -> int:
    """Writes a Llama of width 36 with random weights, and a tokenizer; returns the number of parameters."""
    from transformers import AutoTokenizer

    make_tiny_tokenizer(folder)
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    # Pieces that no text is split into; the model samples them.
    first = 1 + max(max(content["model"]["vocab"].values()), *(token["id"] for token in content["added_tokens"]))
    content["model"]["vocab"] |= {f"w{token}": token for token in range(first, VOCAB_SIZE)}
    path.write_text(json.dumps(content))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) == VOCAB_SIZE
    ends = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    model = build_llama(
        num_hidden_layers=num_layers, hidden_size=36, intermediate_size=96, num_attention_heads=3,
        num_key_value_heads=3, head_dim=12, vocab_size=VOCAB_SIZE, max_position_embeddings=2048, **ends,
    )  # fmt: skip
    model.save_pretrained(folder)
    return int(model.num_parameters())


def build_llama(**config: Any) -> Any:
    """Returns a Llama with random weights, always the same ones, and tied embeddings."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(tie_word_embeddings=True, **config))
