"""The plugin: imports the adapters, and records what became of them.

verl imports this module, by `entry_point`, at the end of `import verl`, in the driver and in every Ray worker. An
adapter is imported as soon as the module of verl that it changes has been imported, so that a process pays only for
what it uses and the order is right: the platform first, then what is looked up by name, then who binds those names.
"""

from __future__ import annotations

import functools
import importlib
import sys
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion

from verl_agentic.base.errors import PluginError

if TYPE_CHECKING:
    from verl_agentic.verl.features import Adapter

RELEASED_VERL = ">=0.9.0,<0.10"
"""The supported releases: what pip installs with the package."""
SUPPORTED_VERL = ">=0.9.0,<=0.10.0.dev0"
"""The same, and snapshots of verl's main branch."""
_PLUGIN = "plugin"
"""Its name among the failures: then no adapter works."""
ADAPTERS: tuple[Adapter, ...] = ()
"""The adapters of all features (`verl.features`) in the order in which they are imported."""


@dataclass
class PluginState:
    """Lists the adapters that this process has loaded, and those that failed."""

    verl: str = ""
    loaded: list[str] = field(default_factory=list)
    """Adapters that have been imported; the others wait for their module of verl."""
    failed: dict[str, str] = field(default_factory=dict)
    """Adapter, `guard`, or `plugin` for all of them -> the exception."""


_state = PluginState()


def state() -> PluginState:
    """Returns what has been loaded in this process, and what failed."""
    return _state


def check(*adapters: str) -> None:
    """Raises when one of the named adapters, or the plugin itself, has failed in this process; of all, without names.

    Raises:
        PluginError: with the cause of every failure.
    """
    failed = {name: cause for name, cause in _state.failed.items() if not adapters or name in (_PLUGIN, *adapters)}
    if failed:
        causes = "; ".join(f"{name}: {cause}" for name, cause in failed.items())
        raise PluginError(f"the verl_agentic plugin did not load completely, got {causes}; run `verl-agentic doctor`")


def load(adapter: Adapter) -> None:
    """Imports an adapter now; a failure is printed once and kept."""
    name = adapter.module
    if name in _state.loaded or name in _state.failed:
        return
    try:
        importlib.import_module(f"verl_agentic.verl.{name}")
        _state.loaded.append(name)
    except Exception as cause:
        importlib.import_module("verl_agentic.verl.patching").undo_failed()
        _record_failure(name, cause)


def load_demanded(names: list[str]) -> None:
    """Imports the named adapters now; nothing happens without names.

    Raises:
        PluginError: one of them, or the plugin itself, has failed.
    """
    if not names:
        return
    check(_PLUGIN)
    for adapter in ADAPTERS:
        if adapter.module in names:
            load(adapter)
    check(*names)


def _register_plugin() -> None:
    global ADAPTERS
    ADAPTERS = importlib.import_module("verl_agentic.verl.features").all_adapters()
    guard = importlib.import_module("verl_agentic.verl.guard")
    hooks = importlib.import_module("verl_agentic.verl.import_hooks")
    # Before the version is looked at: a run that asks for us must stop with any verl.
    guard.install_resolver(check)
    hooks.when_imported("verl.utils.device", functools.partial(_install_guard, guard))
    _state.verl = _verl_version()
    _check_version(_state.verl)
    for adapter in ADAPTERS:
        hooks.when_imported(adapter.needs, functools.partial(load, adapter))


def _install_guard(guard: ModuleType) -> None:
    try:
        guard.install_check(load_demanded)
    except Exception as cause:
        _record_failure("guard", cause)


def _verl_version() -> str:
    """Returns the version of the code that is imported, which need not be that of the installed distribution."""
    try:
        return getattr(sys.modules.get("verl"), "__version__", "") or version("verl")
    except PackageNotFoundError:
        return "none"


def _check_version(version: str) -> None:
    try:
        is_supported = SpecifierSet(SUPPORTED_VERL).contains(version, prereleases=True)
    except InvalidVersion:
        is_supported = False
    if not is_supported:
        raise PluginError(
            f"verl_agentic works with verl {SUPPORTED_VERL}, got verl {version}; pip install 'verl{RELEASED_VERL}'"
        )


def _record_failure(name: str, cause: BaseException) -> None:
    # Not above: that module imports this one.
    from verl_agentic.entry_point import report

    _state.failed[name] = f"{type(cause).__name__}: {cause}"
    report("the plugin" if name == _PLUGIN else f"adapters.{name}", cause)


try:
    _register_plugin()
except Exception as error:  # verl would hide it at DEBUG
    _record_failure(_PLUGIN, error)
