"""What verl loads through its entry point group `verl.plugins`: the list of adapters, and what became of them.

verl imports this module at the end of `import verl`, in the driver and in every Ray worker. An adapter is imported as
soon as the module of verl that it changes has been imported, so that a process pays only for what it uses and the
order is right: the platform first, then what is looked up by name, then who binds those names.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import traceback
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

from verl_agentic.errors import PluginError

SUPPORTED_VERL = ((0, 9, 1), (0, 10))
"""First version that works, and the first that does not any more."""


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """One module of `verl_agentic.adapters`."""

    module: str
    needs: str
    """The module of verl after whose import this one is imported."""
    gives: str
    """What it registers or changes."""
    chosen_by: str
    """The configuration that uses it."""


ADAPTERS = (
    Adapter(
        module="cpu.platform",
        needs="verl.plugin.platform",
        gives="platform cpu",
        chosen_by="environment variable VERL_PLATFORM=cpu",
    ),
    Adapter(
        module="cpu.noise", needs="verl.plugin.platform", gives="a readable console", chosen_by="VERL_PLATFORM=cpu"
    ),
    Adapter(
        module="cpu.distributed",
        needs="verl.utils.distributed",
        gives="process groups over gloo",
        chosen_by="VERL_PLATFORM=cpu",
    ),
    Adapter(
        module="cpu.value_head",
        needs="verl.utils.model",
        gives="critic without flash-attention",
        chosen_by="VERL_PLATFORM=cpu and critic.enable",
    ),
    Adapter(
        module="cpu.engine",
        needs="verl.workers.engine",
        gives="FSDP2 engines for device cpu",
        chosen_by="VERL_PLATFORM=cpu and actor.strategy=fsdp2",
    ),
    Adapter(
        module="rollout_names",
        needs="verl.workers.rollout.replica",
        gives="rollout backend agentic",
        chosen_by="actor_rollout_ref.rollout.name=agentic",
    ),
    Adapter(
        module="agent_loop",
        needs="verl.experimental.agent_loop",
        gives="agent loop env_agent",
        chosen_by="actor_rollout_ref.rollout.agent.default_agent_loop=env_agent, or agent_name in a row",
    ),
    Adapter(
        module="checkpoint_engine",
        needs="verl.checkpoint_engine.base",
        gives="checkpoint engine object_store",
        chosen_by="actor_rollout_ref.rollout.checkpoint_engine.backend=object_store",
    ),
    Adapter(
        module="shuffled_rewards",
        needs="verl.trainer.ppo.core_algos",
        gives="estimator grpo_shuffled (a control)",
        chosen_by="algorithm.adv_estimator=grpo_shuffled",
    ),
    Adapter(
        module="replay_buffer",
        needs="verl.trainer.ppo.v1.replay_buffer",
        gives="poll interval and metrics episode/*",
        chosen_by="trainer.v1.sampler.sampler_kwargs.poll_interval_s",
    ),
)


@dataclass
class PluginState:
    """What happened in this process."""

    verl: str = ""
    loaded: list[str] = field(default_factory=list)
    """Adapters that have been imported; the others wait for their module of verl."""
    failed: dict[str, str] = field(default_factory=dict)
    """Adapter, or `plugin` -> the exception."""


_state = PluginState()


def state() -> PluginState:
    """Returns what has been loaded in this process, and what failed."""
    return _state


def check() -> None:
    """Raises when anything of the plugin has failed in this process.

    Raises:
        PluginError: with the cause of every failure.
    """
    if _state.failed:
        causes = "; ".join(f"{name}: {cause}" for name, cause in _state.failed.items())
        raise PluginError(f"the verl_agentic plugin did not load completely, got {causes}; run `verl-agentic doctor`")


def load(adapter: Adapter) -> None:
    """Imports an adapter now; a failure is printed once and kept."""
    name = adapter.module
    if name in _state.loaded or name in _state.failed:
        return
    try:
        importlib.import_module(f"verl_agentic.adapters.{name}")
        _state.loaded.append(name)
    except BaseException as cause:
        _fail(f"adapters.{name}", name, cause)
        if not isinstance(cause, Exception):
            raise


def load_demanded(names: list[str]) -> None:
    """Imports the named adapters now.

    Raises:
        PluginError: one of them, or the plugin itself, has failed.
    """
    for adapter in ADAPTERS:
        if adapter.module in names:
            load(adapter)
    if names:
        check()


def _register() -> None:
    guard = importlib.import_module("verl_agentic.adapters.guard")
    hooks = importlib.import_module("verl_agentic.adapters.hooks")
    guard.install_resolver(check)
    hooks.when_imported("verl.utils.config", lambda: guard.install_validation(load_demanded))
    _state.verl = _verl_version()
    _check_version(_state.verl)
    for adapter in ADAPTERS:
        hooks.when_imported(adapter.needs, functools.partial(load, adapter))


def _verl_version() -> str:
    try:
        return version("verl")
    except PackageNotFoundError:
        return getattr(sys.modules.get("verl"), "__version__", "unknown")


def _check_version(found: str) -> None:
    numbers = tuple(int(part) for part in found.split(".")[:3] if part.isdigit())
    first, end = SUPPORTED_VERL
    if not first <= numbers < end:
        raise PluginError(
            f"verl_agentic works with verl >=0.9.1,<0.10, got verl {found}; pip install 'verl>=0.9.1,<0.10'"
        )


def _fail(what: str, name: str, cause: BaseException) -> None:
    _state.failed[name] = f"{type(cause).__name__}: {cause}"
    last = traceback.extract_tb(cause.__traceback__)[-1:]
    where = f" ({last[0].filename}:{last[0].lineno})" if last else ""
    print(
        f"ERROR verl_agentic: {what} did not load in process {os.getpid()}: {type(cause).__name__}: {cause}{where}. "
        "Runs that ask for it will stop. `verl-agentic doctor` shows more.",
        file=sys.stderr,
        flush=True,
    )


try:
    _register()
except Exception as error:  # verl would hide it at DEBUG
    _fail("the plugin", "plugin", error)
