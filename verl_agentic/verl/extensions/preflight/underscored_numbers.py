"""Ranges of verl's rollout correction that Hydra and YAML read as one number: `0.5_2` is 0.52."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

_SECTIONS = ("algorithm.rollout_correction", "actor_rollout_ref.actor.policy_loss.rollout_correction")
_KEYS = ("rollout_is_threshold", "rollout_rs_threshold")


def numbers_meant_as_ranges(config: Any, *, config_dir: Path | None, overrides: Sequence[str]) -> list[str]:
    """Returns thresholds whose text has an underscore, and whose value is a number.

    Args:
        config: the composed configuration.
        config_dir: folder of the user's configurations.
        overrides: as on the command line.
    """
    files = [] if config_dir is None else sorted(config_dir.rglob("*.yaml"))
    texts = [*overrides, *(path.read_text(encoding="utf-8", errors="replace") for path in files)]
    faults = []
    for section in _SECTIONS:
        for key in _KEYS:
            value = OmegaConf.select(config, f"{section}.{key}")
            number_texts = dict.fromkeys(text for text in _iter_number_texts(texts, key) if _is_read_as(text, value))
            faults += [
                f"{section}.{key}={text} is read as the number {value}; for a range write "
                f'{section}.{key}="\'{text}\'" on the command line, and "{text}" in YAML'
                for text in number_texts
            ]
    return faults


def _iter_number_texts(texts: Sequence[str], key: str) -> Iterator[str]:
    for text in texts:
        pattern = rf"^[^#\n]*\b{key}[\"']?\s*[=:]\s*([\d.][\d.eE+-]*_[\d.eE+_-]*)(?=[\s,}}]|$)"
        yield from re.findall(pattern, text, re.MULTILINE)


def _is_read_as(text: str, value: Any) -> bool:
    try:
        return isinstance(value, int | float) and float(text) == float(value)
    except ValueError:
        return False
