"""Paths: the bundled environments and recipes, in a checkout or in an installed wheel, and folders of this user."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from verl_agentic.base.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parents[1]


def _find_root() -> Path:
    checkout = _PACKAGE.parent
    is_checkout = (checkout / "pyproject.toml").is_file() and (checkout / "envs").is_dir()
    return checkout if is_checkout else _PACKAGE / "_bundled"


def envs_dir() -> Path:
    """Returns the folder that holds one folder per bundled environment."""
    return _find_root() / "envs"


def recipes_dir() -> Path:
    """Returns the folder that holds one folder per recipe."""
    return _find_root() / "recipes"


def find_bundled(place: str) -> Path:
    """Returns the path of a bundled file or folder, such as `envs/shop` or `verl_agentic/plugin.py`; it may be missing.

    Args:
        place: its path from the root of the repository.
    """
    return (_PACKAGE.parent if Path(place).parts[0] == _PACKAGE.name else _find_root()) / place


def cache_dir() -> Path:
    """Returns the package's folder in the user's folder for caches; it may be missing."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "verl_agentic"


def private_folder(purpose: str) -> Path:
    """Returns a folder below that for temporary files, in which no other user can place a file or a link; makes it.

    Raises:
        ConfigError: another user may have made it, because its name can be guessed.
    """
    path = Path(tempfile.gettempdir()) / f"verl_agentic-{purpose}-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise ConfigError(
            f"the folder for {purpose} must be our own and closed to others, got {path}; remove it, or set TMPDIR to a "
            "folder of your own"
        )
    return path


def make_private(path: Path) -> None:
    """Makes a file that only this user can read; leaves an existing one as it is."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def recipe_folder(recipe: str) -> Path:
    """Returns the folder of a recipe: a bundled one by its name, or any other by its path."""
    return Path(recipe).resolve() if "/" in recipe else recipes_dir() / recipe


def recipe_file(recipe: str, name: str) -> Path:
    """Returns the path of file `name` of recipe `recipe`.

    Raises:
        ConfigError: there is no such file; the message lists the recipes that have one.
    """
    path = recipe_folder(recipe) / name
    if not path.is_file():
        recipes = sorted(p.parent.name for p in recipes_dir().glob(f"*/{name}"))
        raise ConfigError(f"no recipe file {name!r} in recipe {recipe!r}, got {path}; recipes with one: {recipes}")
    return path
