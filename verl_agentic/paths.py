"""Paths of the bundled environments and recipes, in a checkout or in an installed wheel."""

from __future__ import annotations

import os
from pathlib import Path

from verl_agentic.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parent


def _root() -> Path:
    checkout = _PACKAGE.parent
    is_checkout = (checkout / "pyproject.toml").is_file() and (checkout / "envs").is_dir()
    return checkout if is_checkout else _PACKAGE / "_bundled"


def envs_dir() -> Path:
    """Returns the folder that holds one folder per bundled environment."""
    return _root() / "envs"


def recipes_dir() -> Path:
    """Returns the folder that holds one folder per recipe."""
    return _root() / "recipes"


def cache_dir() -> Path:
    """Returns the package's folder in the user's folder for caches; it may be missing."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "verl_agentic"


def recipe_file(recipe: str, name: str) -> Path:
    """Returns the path of file `name` of recipe `recipe`.

    Raises:
        ConfigError: there is no such file; the message lists the recipes that have one.
    """
    path = recipes_dir() / recipe / name
    if not path.is_file():
        known = sorted(p.parent.name for p in recipes_dir().glob(f"*/{name}"))
        raise ConfigError(f"no recipe file {name!r} in recipe {recipe!r}, got {path}; recipes with one: {known}")
    return path
