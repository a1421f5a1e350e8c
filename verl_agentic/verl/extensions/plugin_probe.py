"""Probe of the plugin in a fresh process and in a Ray worker, with its patches of verl. Run as a module.

Prints a JSON line for each, and for the hooks that this verl lacks. Arguments: `process`, `ray_worker`; without one,
both, one after the other.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any

from verl_agentic.verl.patching import missing_hooks, patches
from verl_agentic.verl.quick_imports import without_collections

_MARK = "verl_agentic probe: "
_PACKAGES = ("verl", "verl_agentic", "torch", "transformers", "tensordict", "omegaconf", "transfer_queue")
SAME = {"is": "as in a fresh process"}
"""State of a worker that imports what a fresh process imports."""


def look() -> dict[str, Any]:
    """Returns the plugin's state after everything that it waits for has been imported, as JSON."""
    with without_collections():
        return _describe_state()


def _describe_state() -> dict[str, Any]:
    try:
        import verl
    except Exception as cause:
        return {"error": f"import verl failed, got {type(cause).__name__}: {cause}"}
    plugin = sys.modules.get("verl_agentic.plugin")
    report = {
        "verl": verl.__version__,
        "path": getattr(plugin, "__file__", None),
        "was_loaded": plugin is not None,
        "entry_points": _entry_points(),
    }
    if plugin is None:
        return report
    state = plugin.state()
    for adapter in () if "plugin" in state.failed else plugin.ADAPTERS:
        try:
            importlib.import_module(adapter.needs)
        except Exception as cause:
            state.failed.setdefault(adapter.module, f"{adapter.needs}: {type(cause).__name__}: {cause}")
    return {**report, "loaded": state.loaded, "failed": state.failed}


def _entry_points() -> dict[str, str | None]:
    """Returns plugin -> the exception that loading it raises, which verl hides, or None."""
    hidden: dict[str, str | None] = {}
    for entry_point in entry_points(group="verl.plugins"):
        try:
            loaded = entry_point.load()
            hidden[entry_point.name] = getattr(loaded, "failure", None) or None
        except Exception as cause:
            hidden[entry_point.name] = f"{type(cause).__name__}: {cause}"
    return hidden


def patch_table() -> list[dict[str, Any]]:
    """Returns the patches of verl in this process as JSON, by symbol and order; complete after `look`."""
    plugin = sys.modules.get("verl_agentic.plugin")
    supported = getattr(plugin, "SUPPORTED_VERL", "")
    rows = [{**asdict(patch), "versions": patch.versions or supported} for patch in patches()]
    return sorted(rows, key=lambda row: (row["symbol"], row["order"]))


def missing_table() -> list[dict[str, Any]]:
    """Returns the hooks that this verl lacks as JSON; complete after `look`."""
    return [asdict(hook) for hook in missing_hooks()]


def find_packages() -> dict[str, Any]:
    """Returns where this process would import verl, the plugin and what they need most, without importing them."""
    origins = {name: getattr(find_spec(name), "origin", None) for name in _PACKAGES}
    plugins = sorted((entry_point.name, entry_point.value) for entry_point in entry_points(group="verl.plugins"))
    policy = os.environ.get("VERL_USE_EXTERNAL_PLUGINS")
    return {"python": sys.executable, "origins": origins, "plugins": plugins, "policy": policy}


def look_elsewhere(packages: dict[str, Any]) -> dict[str, Any]:
    """Returns `SAME` if this process would import these packages, too; else the plugin's state here.

    So a healthy worker need not import all of verl, which takes longer than all else that a check does.
    """
    return SAME if find_packages() == packages else look()


def look_in_ray_worker() -> dict[str, Any]:
    """Returns what a worker of a Ray cluster of its own sees, or `SAME`."""
    try:
        import ray

        with tempfile.TemporaryDirectory(prefix="ray_", ignore_cleanup_errors=True) as folder:
            ray.init(
                num_cpus=1,
                include_dashboard=False,
                log_to_driver=False,
                object_store_memory=100 * 2**20,
                _temp_dir=folder,
            )
            try:
                return ray.get(ray.remote(look_elsewhere).remote(find_packages()))
            finally:
                ray.shutdown()
    except Exception as cause:
        return {"error": f"a Ray worker failed, got {type(cause).__name__}: {cause}"}


def parse(output: str) -> dict[str, Any]:
    """Returns what a run of this module printed, or less if it ended before.

    `process`, `patches`, `missing_hooks` and `ray_worker`.
    """
    parts: dict[str, Any] = {}
    for line in output.splitlines():
        if _MARK in line:
            parts.update(json.loads(line.partition(_MARK)[2]))
    if parts.get("ray_worker") == SAME:
        parts["ray_worker"] = parts.get("process", {"error": "a fresh process gave no answer"})
    return parts


def _print_parts(places: Sequence[str]) -> None:
    parts = {
        "process": {"process": look, "patches": patch_table, "missing_hooks": missing_table},
        "ray_worker": {"ray_worker": look_in_ray_worker},
    }
    for place in places or parts:
        for part, function in parts[place].items():
            print(_MARK + json.dumps({part: function()}), flush=True)


if __name__ == "__main__":
    _print_parts(sys.argv[1:])
