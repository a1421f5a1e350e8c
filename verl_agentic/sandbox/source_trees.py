"""Trees of this machine that sandboxes begin with, packed for the way into a sandbox."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

from verl_agentic.base.errors import ConfigError
from verl_agentic.sandbox.inside import frames, take_tree
from verl_agentic.sandbox.interface import Tree

_MAX_CACHED, _MAX_FILES = 16, 1_000_000
_NO_WRITE, _OWNER_WRITE = 0o555, 0o200


def packed(tree: Tree) -> tuple[list[list[Any]], bytes]:
    """Returns (path below `at`, size, mode) of each file of a tree, and the joined contents; reads a folder once.

    Raises:
        ConfigError: the folder is missing, too large for one call, or has links or special files.
    """
    entries, contents = _read_tree(os.path.realpath(tree.source))
    return [
        [path, size, mode & _NO_WRITE if tree.read_only else mode | _OWNER_WRITE] for path, size, mode in entries
    ], contents


def refuse_image(name: str, image: str | None) -> None:
    """Raises ConfigError if an image is asked of a backend that has none."""
    if image is not None:
        raise ConfigError(
            f"only docker, daytona and modal have images, got image={image!r} for {name}; use one of them"
        )


def refuse_trees(name: str, trees: Sequence[Tree]) -> None:
    """Raises ConfigError if trees are asked of a backend that keeps no files."""
    if trees:
        raise ConfigError(
            f"the backend {name} keeps nothing between runs, got {len(trees)} trees; use namespaces, docker or landlock"
        )


@functools.lru_cache(maxsize=_MAX_CACHED)
def _read_tree(source: str) -> tuple[list[list[Any]], bytes]:
    tree = take_tree.take(source, ".", max_bytes=frames.MAX_BLOB, max_files=_MAX_FILES)
    if tree.skipped:
        path, reason = tree.skipped[0]
        raise ConfigError(
            f"a tree has regular files and folders only, got {reason!r} for {path!r} of {source} "
            f"({len(tree.skipped)} in total); copy it without them"
        )
    return tree.files, bytes(tree.contents)
