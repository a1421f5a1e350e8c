"""Sections of a configuration as plain data."""

from __future__ import annotations

from typing import Any

from omegaconf import OmegaConf


def plain_section(config: Any, key: str) -> Any:
    """Returns what stands at a dotted key, resolved; None where nothing does. It need not be a mapping."""
    section = OmegaConf.select(config, key)
    return OmegaConf.to_container(section, resolve=True) if OmegaConf.is_config(section) else section
