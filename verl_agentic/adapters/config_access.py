"""Sections of a configuration as plain data."""

from __future__ import annotations

from typing import Any

from omegaconf import OmegaConf


def plain_section(config: Any, key: str) -> Any:
    """Returns what stands at a dotted key, resolved; None where nothing does. It need not be a mapping."""
    return plain(OmegaConf.select(config, key))


def plain(written: Any) -> Any:
    """Returns a part of a configuration as plain data."""
    return OmegaConf.to_container(written, resolve=True) if OmegaConf.is_config(written) else written
