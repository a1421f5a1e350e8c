"""What stands in a run's folder once: its configuration and its tokenizer; and whether it has ended."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from verl_agentic.trajectory_log.secrets import own_secrets

logger = logging.getLogger(__name__)
ENDED = "ended.jsonl"
"""When the trainer began (`"ended": false`) and returned (`true`), a line each; its last line holds."""
_SECRET_KEY = re.compile(r"api_?key|token$|secret|passw", re.IGNORECASE)


def write_config(folder: Path, config: Any) -> None:
    """Writes `config.yaml`, without secrets: what is named like one, and what the environment holds as one."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(_without_secrets(own_secrets().removed(config)), sort_keys=False, allow_unicode=True)
        (folder / "config.yaml").write_text(text, encoding="utf-8")
    except (OSError, yaml.YAMLError) as cause:
        logger.warning("the configuration is not in %s: %s", folder, cause)


def write_tokenizer(folder: Path, tokenizer: Any) -> None:
    """Writes `tokenizer/`, from which the viewer knows the text of single tokens."""
    try:
        tokenizer.save_pretrained(str(folder / "tokenizer"))
    except Exception as cause:  # some tokenizers of the user's own cannot be saved
        logger.warning("the tokenizer is not in %s, got %s: %s", folder, type(cause).__name__, cause)


def _without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: "[removed]" if _is_secret(key, item) else _without_secrets(item) for key, item in value.items()}
    return [_without_secrets(item) for item in value] if isinstance(value, list) else value


def _is_secret(key: Any, value: Any) -> bool:
    return isinstance(value, str) and bool(value) and _SECRET_KEY.search(str(key)) is not None
