"""The configuration that a `main_ppo` command line stands for, without importing verl."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import yaml
from omegaconf import DictConfig

from verl_agentic.errors import ConfigError, boundary

_SEARCH_PATH = "hydra.searchpath"


def verl_config_dir() -> Path:
    """Returns the folder of verl's own configuration.

    Raises:
        ConfigError: verl is not installed.
    """
    spec = importlib.util.find_spec("verl")
    if spec is None or spec.origin is None:
        raise ConfigError("verl is not installed, got no module of that name; pip install 'verl-agentic[cpu]'")
    return Path(spec.origin).parent / "trainer" / "config"


def compose_config(folder: Path | None, name: str, overrides: Sequence[str]) -> DictConfig:
    """Returns what `main_ppo --config-dir folder --config-name name overrides...` would read.

    Args:
        folder: of the user's configuration; None: verl's own.
        name: of the file, without `.yaml`.
        overrides: in Hydra's syntax.

    Raises:
        ConfigError: Hydra cannot compose it; the message is Hydra's.
    """
    from hydra import compose, initialize_config_dir

    base = verl_config_dir()
    home = (folder or base).resolve()
    if not (home / f"{name}.yaml").is_file():
        raise ConfigError(f"no such configuration, got {home / f'{name}.yaml'}; name --config-dir and --config-name")
    own = _search_path(home / f"{name}.yaml", overrides)
    search = dict.fromkeys([f"file://{base}", "pkg://verl_agentic.config", *own])
    rest = [override for override in overrides if not override.lstrip("+").startswith(f"{_SEARCH_PATH}=")]
    quoted = ",".join(f"'{entry}'" for entry in search)
    with boundary(ConfigError, f"composing {home / name}.yaml"), initialize_config_dir(str(home), version_base=None):
        return compose(name, overrides=[f"{_SEARCH_PATH}=[{quoted}]", *rest])


def _search_path(file: Path, overrides: Sequence[str]) -> list[str]:
    """Returns the entries that the user adds: an override replaces those of the file."""
    for override in reversed(overrides):
        key, _, value = override.lstrip("+").partition("=")
        if key == _SEARCH_PATH:
            return [str(entry) for entry in cast("list[Any]", yaml.safe_load(value))]
    with boundary(ConfigError, f"reading {file}"):
        written = yaml.safe_load(file.read_text()) or {}
    hydra = written.get("hydra") or {}
    return [str(entry) for entry in hydra.get("searchpath") or written.get(_SEARCH_PATH) or []]
