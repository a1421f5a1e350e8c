"""The model of a dry run: tiny, random, and with the user's tokenizer and chat template."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_agentic.base.errors import ConfigError
from verl_agentic.cpu.tiny_model import make_tiny_model, save_random_model

_MAX_POSITIONS = 32_768


@dataclass(frozen=True, kw_only=True)
class DryrunModel:
    """A model folder."""

    folder: Path
    has_own_tokenizer: bool
    """Whether its tokenizer is that of the configuration."""
    description: str
    """Description for the report."""


def make_model(out: Path, *, choice: str, path: str | None) -> DryrunModel:
    """Returns the model of a dry run.

    Args:
        out: folder of a tiny model, made here.
        choice: `tiny`, or a folder, which is not changed.
        path: `actor_rollout_ref.model.path` of the configuration; None if it is not set.

    Raises:
        ConfigError: `choice` is neither.
    """
    if choice != "tiny":
        if not (Path(choice) / "config.json").is_file():
            raise ConfigError(
                f"--model must be tiny or a model folder, got {choice!r} without config.json; name a folder"
            )
        return DryrunModel(folder=Path(choice).resolve(), has_own_tokenizer=True, description=f"{choice} as it is")
    tokenizer, reason = _load_tokenizer(path)
    if tokenizer is None:
        size = make_tiny_model(out)
        description = f"{size / 1e6:.1f} M random parameters, the quickstart's tokenizer ({reason})"
        return DryrunModel(folder=out, has_own_tokenizer=False, description=description)
    tokenizer.save_pretrained(out)
    size = save_random_model(out, tokenizer, max_positions=_MAX_POSITIONS)
    description = f"{size / 1e6:.1f} M random parameters, tokenizer and chat template of {path}"
    return DryrunModel(folder=out, has_own_tokenizer=True, description=description)


def _load_tokenizer(path: str | None) -> tuple[Any, str]:
    """Returns the tokenizer of a model on this machine, or the reason why there is none."""
    from transformers import AutoTokenizer

    if path is None:
        return None, "no model is configured"
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(Path(path).expanduser()), local_files_only=True)
    except Exception as cause:
        return None, f"{path} has none on this machine: {type(cause).__name__}"
    if not getattr(tokenizer, "chat_template", None):
        return None, f"that of {path} has no chat template"
    return tokenizer, ""
