"""The entry point `verl.plugins`: imports the plugin, and reports a failure that verl would hide.

verl logs the exception of an entry point at DEBUG and goes on. So this module needs the standard library alone: it
cannot fail with the plugin, or with one of its dependencies.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

failure = ""
"""Why the plugin did not load in this process; empty where it did, or where verl has not asked for it."""

KEYS = frozenset(
    {
        "agentic",
        "actor_rollout_ref.actor.policy_loss.options",
        "actor_rollout_ref.rollout.custom.agentic",
        "algorithm.cost_limits",
        "algorithm.credit",
        "algorithm.implicit_reward",
        "algorithm.length_lr",
        "algorithm.linear_lr",
        "algorithm.prompt_information",
        "algorithm.self_teacher",
        "critic.categorical",
        "critic.target",
        "data.curriculum",
        "reward.rubric",
    }
)
"""Sections of the plugin. verl ignores them, so a run that has one must not start without the plugin."""
_NAMES = ("agentic", "env_agent", "object_store", "rubric", "grpo_shuffled")
"""Values by which a configuration chooses a part of the plugin."""


def describe(cause: BaseException) -> str:
    """Returns an exception in one line, with the place that raised it."""
    last = traceback.extract_tb(cause.__traceback__)[-1:]
    place = f" ({last[0].filename}:{last[0].lineno})" if last else ""
    return " ".join(f"{type(cause).__name__}: {cause}".split()) + place


def report(part: str, cause: BaseException) -> None:
    """Prints that a part of the plugin did not load."""
    print(
        f"ERROR verl_agentic: {part} did not load in process {os.getpid()}: {describe(cause)}. "
        "Runs that ask for it will stop. `verl-agentic doctor` shows more.",
        file=sys.stderr,
        flush=True,
    )


def asks_for_plugin(config: Mapping[str, Any]) -> bool:
    """Tells whether a run with this configuration, as plain data, needs the plugin."""
    is_cpu = os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu"
    return is_cpu or any(path in KEYS or _is_ours(value) for path, value in _iter_nodes(config, ""))


def _iter_nodes(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            place = f"{path}.{key}" if path else str(key)
            if value is not None:
                yield place, value
            yield from _iter_nodes(value, place)
    elif isinstance(node, list):
        for value in node:
            yield path, value
            yield from _iter_nodes(value, path)


def _is_ours(value: Any) -> bool:
    return isinstance(value, str) and (value in _NAMES or value.startswith("agentic_") or "verl_agentic" in value)


def _load_plugin() -> None:
    global failure
    try:
        plugin = importlib.import_module("verl_agentic.plugin")
        failure = plugin.state().failed.get("plugin", "")
    except Exception as cause:
        failure = describe(cause)
        report("the plugin", cause)
    if failure:
        _install_guard()


def _install_guard() -> None:
    """Makes runs that ask for the plugin stop, in place of the plugin's own guards, which may be what is broken."""
    try:
        from omegaconf import OmegaConf

        device: Any = importlib.import_module("verl.utils.device")
    except Exception as cause:  # then no trainer of verl starts either
        report("the guard of runs", cause)
        return

    def stop(*_: Any) -> Any:
        raise _make_error(f"the verl_agentic plugin did not load, got {failure}; run `verl-agentic doctor`")

    if not OmegaConf.has_resolver("verl_agentic"):
        OmegaConf.register_new_resolver("verl_agentic", stop)
    auto_set_device = device.auto_set_device

    @functools.wraps(auto_set_device)
    def check_and_set_device(config: Any) -> None:
        plain: Any = OmegaConf.to_container(config, resolve=False) if OmegaConf.is_config(config) else config
        if asks_for_plugin(plain):
            stop()
        auto_set_device(config)

    device.auto_set_device = check_and_set_device


def _make_error(message: str) -> Exception:
    try:
        return importlib.import_module("verl_agentic.base.errors").PluginError(message)
    except Exception:
        return RuntimeError(message)


_load_plugin()
