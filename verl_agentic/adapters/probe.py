"""What the plugin looks like in a fresh process and in a Ray worker; prints one JSON line. Run as a module."""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from importlib.metadata import entry_points
from typing import Any

_MARK = "verl_agentic probe: "


def look() -> dict[str, Any]:
    """Returns the plugin's state after everything that it waits for has been imported, as JSON."""
    try:
        import verl
    except Exception as cause:
        return {"error": f"import verl failed, got {type(cause).__name__}: {cause}"}
    plugin = sys.modules.get("verl_agentic.plugin")
    found = {"verl": verl.__version__, "entry_points": _entry_points(), "was_loaded": plugin is not None}
    if plugin is None:
        return found
    for adapter in plugin.ADAPTERS:
        try:
            importlib.import_module(adapter.needs)
        except Exception as cause:
            plugin.state().failed[adapter.module] = f"{adapter.needs}: {type(cause).__name__}: {cause}"
    state = plugin.state()
    return {**found, "loaded": state.loaded, "failed": state.failed}


def _entry_points() -> dict[str, str | None]:
    """Returns plugin -> the exception that loading it raises, which verl hides, or None."""
    hidden: dict[str, str | None] = {}
    for entry_point in entry_points(group="verl.plugins"):
        try:
            entry_point.load()
            hidden[entry_point.name] = None
        except Exception as cause:
            hidden[entry_point.name] = f"{type(cause).__name__}: {cause}"
    return hidden


def look_in_ray_worker() -> dict[str, Any]:
    """Returns what a worker of a Ray cluster of its own sees."""
    import ray

    with tempfile.TemporaryDirectory(prefix="ray_", ignore_cleanup_errors=True) as folder:
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, _temp_dir=folder, logging_level="ERROR")
        try:
            return ray.get(ray.remote(look).remote())
        finally:
            ray.shutdown()


def parse(output: str) -> dict[str, Any] | None:
    """Returns what a run of this module printed, or None."""
    lines = [line.partition(_MARK)[2] for line in output.splitlines() if _MARK in line]
    return json.loads(lines[-1]) if lines else None


if __name__ == "__main__":
    print(_MARK + json.dumps({"process": look(), "ray_worker": look_in_ray_worker()}), flush=True)
