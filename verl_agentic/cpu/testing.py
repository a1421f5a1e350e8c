"""Tokenizer and codecs of a tiny model, for tests of environments."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl_agentic.cpu.tiny_model import make_tiny_tokenizer
from verl_agentic.episode.codec.codec import Codec
from verl_agentic.verl.rollout.model_codec import load_codec


def tiny_codecs(folder: Path, *protocols: str) -> tuple[Any, Mapping[str, Codec]]:
    """Makes the tokenizer of a tiny model and returns it with the codecs of protocols.

    Args:
        folder: where the tokenizer is written.
        protocols: names or paths; `chat` when there are none.
    """
    make_tiny_tokenizer(folder)
    loaded = {name: load_codec(str(folder), protocol=name) for name in protocols or ("chat",)}
    return next(iter(loaded.values()))[0], {name: codec for name, (_, codec) in loaded.items()}
