"""Environments that other packages install: entry points of the group `verl_agentic.environments`."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from importlib.util import find_spec

GROUP = "verl_agentic.environments"


@dataclass(frozen=True, kw_only=True)
class InstalledEnv:
    """An entry point of the group."""

    name: str
    """What `agentic.env` takes."""
    module: str
    function: str
    """The place of `make_env` in the module."""
    distribution: str
    version: str

    @property
    def origin(self) -> str:
        """The package that installed it, with its version."""
        return f"{self.distribution} {self.version}".strip()


def installed_envs() -> dict[str, InstalledEnv]:
    """Returns name -> installed environment, without importing one; of two of a name, the first one on `sys.path`."""
    envs: dict[str, InstalledEnv] = {}
    for entry in entry_points(group=GROUP):
        module, _, function = entry.value.partition(":")
        env = InstalledEnv(
            name=entry.name,
            module=module.strip(),
            function=function.strip() or "make_env",
            distribution=entry.dist.name if entry.dist else "",
            version=entry.dist.version if entry.dist else "",
        )
        envs.setdefault(env.name, env)
    return envs


def installed_places() -> tuple[str, ...]:
    """Returns the folders of the top packages of installed environments, or the files of single modules."""
    return _find_places(tuple(sys.path))


@functools.lru_cache(maxsize=1)
def _find_places(search_path: tuple[str, ...]) -> tuple[str, ...]:
    """Returns them for the present `sys.path`; it is the key, because each frame of a traceback asks."""
    packages = {env.module.partition(".")[0] for env in installed_envs().values()}
    return tuple(place for package in sorted(packages) for place in _iter_places(package))


def _iter_places(package: str) -> Iterator[str]:
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return
    if spec is not None and spec.submodule_search_locations:
        yield from (f"{folder}{os.sep}" for folder in spec.submodule_search_locations)
    elif spec is not None and spec.origin:
        yield spec.origin
