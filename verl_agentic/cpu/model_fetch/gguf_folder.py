"""Converts a GGUF file into a Hugging Face folder.

transformers reads the weights. What it gets wrong is read from the file here: the end of a turn, the padding, and how
text is split before byte pairs are merged.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from verl_agentic.base.env_card import needs_extra
from verl_agentic.base.errors import DataError, boundary

Dtype = Literal["bfloat16", "float32"]
_PREFIX = "tokenizer.ggml."
_ROLES = {"bos": "bos_token_id", "eos": "eos_token_id", "pad": "padding_token_id", "unk": "unknown_token_id"}
"""Special token -> its key in the file."""
_DIGITS_APART = ("smollm",)
"""Values of `tokenizer.ggml.pre` whose tokenizers split numbers into digits, then text as GPT-2 does."""


@dataclass(frozen=True, kw_only=True)
class ConvertedModel:
    """A converted model."""

    parameters: int
    end_token: str | None
    """Ends a turn; None for an embedding model."""
    notes: tuple[str, ...]
    """Warnings for the user."""


def convert_gguf(gguf: Path, out: Path, *, dtype: Dtype) -> ConvertedModel:
    """Writes the folder `out` with weights, tokenizer and chat template of a GGUF file.

    Quantised weights are expanded. The folder appears when it is complete.

    Args:
        out: the folder; replaced if it exists.

    Raises:
        MissingDependencyError: the package `gguf` or `accelerate` is not installed.
        DataError: the file cannot be read, or has no end token.
    """
    fields = _read_fields(gguf)
    part = out.with_name(f"{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    with boundary(DataError, f"transformers loads {gguf}"), _silence_transformers():
        tokenizer, notes = _make_tokenizer(gguf, fields)
        model = _load_model(gguf, dtype)
    _set_special_tokens(model, tokenizer)
    model.save_pretrained(part)
    tokenizer.save_pretrained(part)
    shutil.rmtree(out, ignore_errors=True)
    part.rename(out)
    return ConvertedModel(parameters=model.num_parameters(), end_token=tokenizer.eos_token, notes=notes)


def _read_fields(gguf: Path) -> dict[str, Any]:
    """Returns what this module needs of a file's metadata: special tokens as texts, `pre`, and `max_length`.

    Raises:
        MissingDependencyError, DataError: as `convert_gguf`.
    """
    with needs_extra("gguf", what="reading a GGUF file"):
        import accelerate  # noqa: F401  # transformers loads GGUF files with it
        from gguf import GGUFReader  # pyright: ignore[reportMissingImports]
    with boundary(DataError, f"reading {gguf} as GGUF"):
        fields = GGUFReader(gguf).fields
        names = ("pre", *_ROLES.values())
        values = {name: fields[f"{_PREFIX}{name}"].contents() for name in names if f"{_PREFIX}{name}" in fields}
        tokens = fields[f"{_PREFIX}tokens"]
        values |= {role: tokens.contents(int(values[key])) for role, key in _ROLES.items() if key in values}
        values["max_length"] = fields[f"{fields['general.architecture'].contents()}.context_length"].contents()
    if "eos" not in values:
        raise DataError(
            f"{gguf} names no end token, so no turn of the model would end; convert the original model, or give "
            "--from-hub NAME"
        )
    return values


def _make_tokenizer(gguf: Path, fields: Mapping[str, Any]) -> tuple[Any, tuple[str, ...]]:
    """Returns the tokenizer with the special tokens of the file, and notes on it."""
    from tokenizers import decoders, pre_tokenizers
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    loaded: Any = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    backend, notes = loaded.backend_tokenizer, list[str]()
    if "pre" in fields:  # byte-level pairs: the original drops a byte without a token, and has no token for all of them
        backend.model.unk_token = None
    if fields.get("pre") in _DIGITS_APART:
        backend.decoder = decoders.ByteLevel()  # transformers adds one for SentencePiece, which drops a first space
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    elif "pre" in fields:
        notes.append(
            f"the file splits text by the rules {fields['pre']!r}, transformers by those of the architecture; compare "
            "the tokens of some texts with those of the original tokenizer"
        )
    if loaded.chat_template is None:
        notes.append("the file has no chat template; set one in tokenizer_config.json")
    special = {f"{role}_token": fields[role] for role in _ROLES if role in fields}
    special.setdefault("pad_token", special["eos_token"])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, model_max_length=fields["max_length"], clean_up_tokenization_spaces=False, **special
    )
    tokenizer.chat_template = loaded.chat_template
    return tokenizer, tuple(notes)


def _load_model(gguf: Path, dtype: Dtype) -> Any:
    """Returns a model that any transformers saves.

    Some releases keep the weights in blocks, and refuse to save a model that was loaded from GGUF. So the expanded
    weights move into a model that knows nothing of the file.
    """
    import transformers

    options = {}
    if config := getattr(transformers, "GgufConfig", None):
        options["quantization_config"] = config(dequantize=True)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=getattr(torch, dtype), **options
    )
    loaded.config.__dict__.pop("quantization_config", None)
    with torch.device("meta"):
        model = type(loaded)(loaded.config)
    model.load_state_dict(loaded.state_dict(), assign=True)
    model.tie_weights()
    return model


def _set_special_tokens(model: Any, tokenizer: Any) -> None:
    from transformers import GenerationConfig

    ids = {f"{role}_token_id": getattr(tokenizer, f"{role}_token_id") for role in ("bos", "eos", "pad")}
    for name, value in ids.items():
        setattr(model.config, name, value)
    model.generation_config = GenerationConfig(**ids)


@contextlib.contextmanager
def _silence_transformers() -> Iterator[None]:
    """Silences the progress bars and the advice of transformers while it loads."""
    from transformers.utils import logging

    level, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if has_bars:
            logging.enable_progress_bar()
