"""Builds a tiny Qwen3 with random weights, a tokenizer and a chat template with tools: nothing is downloaded.

The tokenizer is a byte-level BPE trained on the chat template's own text: the fixed parts of a conversation take few
tokens. Digits are single tokens, which makes numbers easy to copy.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_agentic.base.errors import ConfigError
from verl_agentic.episode.codec.codec import MALFORMED_CALL
from verl_agentic.tools.python import SCHEMA

CHAT_TEMPLATE = """\
{%- if tools or messages[0].role == 'system' -%}
<|im_start|>system
{%- if messages[0].role == 'system' %}{{ '\\n' + messages[0].content }}{% endif -%}
{%- for tool in tools or [] %}
{{- '\\n' + tool.function.name + '(' + (tool.function.parameters.properties | join(', ')) + '): ' }}
{{- tool.function.description }}
{%- endfor -%}
{{ '<|im_end|>\\n' }}
{%- endif -%}
{%- for message in messages -%}
{%- if message.role == 'user' -%}
{{ '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}
{%- elif message.role == 'assistant' -%}
{{ '<|im_start|>assistant\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{%- if message.content or not loop.first %}{{ '\\n' }}{% endif -%}
{{ '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- (call.function.arguments | tojson) + '}\\n</tool_call>' }}
{%- endfor -%}
{{ '<|im_end|>\\n' }}
{%- elif message.role == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif -%}
{{ '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif -%}
{%- elif message.role == 'system' and not loop.first -%}
{{ '<|im_start|>system\\n' + message.content + '<|im_end|>\\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}
"""
START, END, PAD = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
_MAX_VOCAB_SIZE = 1024
MAX_POSITIONS = 4096
"""Maximum number of tokens of a tiny model's episode."""
# The wavelengths of the rotary embedding end near the length of an episode, not at 60,000 tokens. Then heads for
# copying form in a third of the steps.
_ROPE_THETA = 200.0


@dataclass(frozen=True, kw_only=True)
class Preset:
    """The size of a model."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int


# Wide heads and few layers: copying a number from the prompt needs heads, not depth.
PRESETS = {
    "0.5m": Preset(layers=2, hidden=128, heads=4, kv_heads=4, head_dim=32, intermediate=384),
    "1m": Preset(layers=3, hidden=160, heads=5, kv_heads=5, head_dim=32, intermediate=432),
    "2m": Preset(layers=4, hidden=192, heads=6, kv_heads=6, head_dim=32, intermediate=512),
    "10m": Preset(layers=6, hidden=384, heads=6, kv_heads=2, head_dim=64, intermediate=1024),
    # Sizes for a GPU; the layers of the larger one are those of Qwen3-0.6B.
    "75m": Preset(layers=12, hidden=768, heads=12, kv_heads=4, head_dim=64, intermediate=2048),
    "440m": Preset(layers=28, hidden=1024, heads=16, kv_heads=8, head_dim=128, intermediate=3072),
}
DEFAULT_PRESET = "0.5m"


def make_tiny_model(
    out: Path,
    *,
    preset: str = DEFAULT_PRESET,
    seed: int = 0,
    texts: Iterable[str] | None = None,
    token_share: float = 0.5,
) -> int:
    """Writes model, tokenizer and chat template into the folder `out`; returns the number of parameters.

    Equal arguments give equal bytes.

    Args:
        out: the folder; made if it is missing, its model files are replaced.
        preset: one of `PRESETS`.
        seed: of the random weights.
        texts: conversations to train the tokenizer on; None: about arithmetic.
        token_share: minimum share of `texts` in which a piece must occur to become a token.

    Raises:
        ConfigError: unknown preset, or `out` is a file.
    """
    if preset not in PRESETS:
        raise ConfigError(f"unknown preset, got {preset!r}; use one of {sorted(PRESETS)}")
    return save_random_model(out, _save_tokenizer(out, texts, token_share), preset=preset, seed=seed)


def make_tiny_tokenizer(out: Path) -> None:
    """Writes tokenizer, chat template and config of a tiny model, and no weights: enough for `load_codec`.

    Raises:
        ConfigError: `out` is a file.
    """
    tokenizer = _save_tokenizer(out)
    _make_config(PRESETS[DEFAULT_PRESET], tokenizer, MAX_POSITIONS).save_pretrained(out)


def _save_tokenizer(out: Path, texts: Iterable[str] | None = None, token_share: float = 0.5) -> Any:
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file; name a folder")
    out.mkdir(parents=True, exist_ok=True)
    if texts is None:
        tokenizer = _make_tokenizer(_iter_corpus())
    else:
        texts = list(texts)
        tokenizer = _make_tokenizer(_iter_pieces(texts), min_frequency=max(2, int(token_share * len(texts))))
    tokenizer.save_pretrained(out)
    return tokenizer


def save_random_model(
    out: Path, tokenizer: Any, *, preset: str = DEFAULT_PRESET, seed: int = 0, max_positions: int = MAX_POSITIONS
) -> int:
    """Writes the weights of a model with random weights for a tokenizer; returns the number of parameters."""
    import torch
    from transformers import GenerationConfig, Qwen3ForCausalLM

    config = _make_config(PRESETS[preset], tokenizer, max_positions)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    eos, pad = config.eos_token_id, config.pad_token_id
    model.generation_config = GenerationConfig(eos_token_id=[eos, pad], pad_token_id=pad)
    model.save_pretrained(out)
    return model.num_parameters()


def _make_config(preset: Preset, tokenizer: Any, max_positions: int) -> Any:
    from transformers import Qwen3Config

    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=preset.hidden,
        intermediate_size=preset.intermediate,
        num_hidden_layers=preset.layers,
        num_attention_heads=preset.heads,
        num_key_value_heads=preset.kv_heads,
        head_dim=preset.head_dim,
        max_position_embeddings=max_positions,
        tie_word_embeddings=True,
        initializer_range=preset.hidden**-0.5 / 2,
        rope_parameters={"rope_type": "default", "rope_theta": _ROPE_THETA},
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=end if pad is None else pad,
    )


def _make_tokenizer(corpus: Iterable[str], *, min_frequency: int = 0) -> Any:
    """Returns a tokenizer that merges pairs above a minimum frequency."""
    from tokenizers import AddedToken
    from transformers import Qwen2Tokenizer

    # Qwen2's splitting rules: single digits, and AutoTokenizer builds the same class from the files.
    tokenizer = Qwen2Tokenizer().train_new_from_iterator(
        corpus, _MAX_VOCAB_SIZE, show_progress=False, min_frequency=min_frequency
    )
    tokenizer.add_special_tokens({"eos_token": END, "pad_token": PAD, "additional_special_tokens": [START]})
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAGS])
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.model_max_length = MAX_POSITIONS
    return tokenizer


def _iter_pieces(texts: Iterable[str]) -> Iterator[str]:
    """Yields the texts between special tokens and tags."""
    split = re.compile("|".join(map(re.escape, (START, END, PAD, *TAGS))))
    for text in texts:
        yield from filter(None, split.split(text))


def _iter_corpus() -> Iterator[str]:
    """Yields the pieces of conversations about arithmetic, split at special tokens and tags."""
    rng = random.Random(0)
    function = SCHEMA["function"]
    for _ in range(200):
        left, right = rng.randint(10, 999), rng.randint(10, 999)
        yield f"system\n{function['name']}(code): {function['description']}"
        yield f"user\nWhat is {left}*{right}?"
        yield f'\n{{"name": "python", "arguments": {{"code": "print({left}*{right})"}}}}\n'
        yield f"user\n\n{left * right}\n"
        yield f"user\n\nError: {MALFORMED_CALL}\n"
        yield "assistant\n"
        yield rf"\boxed{{{left * right}}}"
