"""The features of the plugin, as each folder of adapters declares them.

A folder has a module `<part>_features`: the readers of its sections (`verl.sections`) and `FEATURES`, which lists
its adapters and what it checks before a run. The plugin, the guard and preflight iterate over these lists. The modules
are loaded in every process, so they import verl, torch and their adapters inside of functions only.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_MODULES = (
    "extensions.cpu.cpu_features",
    "extensions.server.server_features",
    "rollout.rollout_features",
    "trainer.trainer_features",
    "extensions.method_features",
    "engine.engine_features",
    "reward.reward_features",
    "replay_buffer.buffer_features",
    "checkpoints.checkpoint_features",
    "extensions.monitoring.monitoring_features",
)


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """One module of `verl_agentic.verl` that changes or extends verl."""

    module: str
    needs: str
    """The module of verl, or of a package that it uses, after whose import this one is imported."""
    gives: str
    """Components that it registers, or parts of verl that it changes."""
    chosen_by: str
    """The configuration that uses it."""
    demanded_by: Callable[[Any], bool] | None = None
    """Tells whether a run with a configuration must not start without it. None: every run may."""
    behind: tuple[str, ...] = ()
    """Adapters that are imported first: they patch the same symbols."""
    is_used: Callable[[], bool] = lambda: True
    """Tells whether a process may need it. Else it is not even looked for, as `needs` may take long to import."""


@dataclass(frozen=True, kw_only=True)
class Features:
    """Declarations of a folder of adapters, in addition to its sections."""

    adapters: tuple[Adapter, ...] = ()
    places: Mapping[str, str] = field(default_factory=dict)
    """Key below the root `agentic` -> its place in verl's configuration; others belong to `rollout.custom.agentic`."""
    choices: tuple[Callable[[Any], Iterator[tuple[str, Any, str]]], ...] = ()
    """Functions of a configuration that yield key and value of what verl's default must be changed to, and the key of
    the feature that needs it."""
    needs_trainer: tuple[str, ...] = ()
    """Sections and flags that only the trainers `agentic_*` read."""
    trainer_parts: tuple[str, ...] = ()
    """Addresses of classes that act in the trainers `agentic_*` (`verl.trainer.trainer_part`)."""
    curriculum_parts: tuple[str, ...] = ()
    """Addresses of functions of sampler, data set and seed that make a part beside a curriculum, or None
    (`verl.trainer.trainer_part`)."""
    curriculum_checks: tuple[Callable[[Any], None], ...] = ()
    """Functions of the settings of a curriculum that raise a ConfigError for what a part cannot read."""
    watchers: tuple[Callable[[Any, dict[str, Any]], None], ...] = ()
    """Functions of a configuration and of the globals of verl's entry point, called in the driver before Ray starts."""
    checks: tuple[Callable[[Any], None], ...] = ()
    """Functions of a configuration that raise a ConfigError, in the driver before Ray starts."""


@functools.cache
def all_features() -> tuple[Features, ...]:
    """Returns the features of all folders."""
    return tuple(importlib.import_module(f"verl_agentic.verl.{module}").FEATURES for module in _MODULES)


def all_adapters() -> tuple[Adapter, ...]:
    """Returns the adapters that this process may use, in the order in which they are imported."""
    declared = {
        adapter.module: adapter
        for features in all_features()
        for adapter in features.adapters
        if adapter.is_used() and is_installed(adapter.needs.partition(".")[0])
    }
    ordered: dict[str, Adapter] = {}

    def place(adapter: Adapter) -> None:
        for name in adapter.behind:
            place(declared[name])
        ordered.setdefault(adapter.module, adapter)

    for adapter in declared.values():
        place(adapter)
    return tuple(ordered.values())


@functools.cache
def is_installed(package: str) -> bool:
    """Returns whether a package can be imported; a mere folder of its name, such as in the current one, is none."""
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None
