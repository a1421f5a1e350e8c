"""Required values that are not set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from verl_agentic.base.finding import Finding, fail
from verl_agentic.checks.preflight.planned_run import MISSING, PlannedRun

_ALWAYS = {"actor_rollout_ref.rollout.name"}


def missing_values(run: PlannedRun) -> list[Finding]:
    """Returns the keys that must still be set."""
    missing = [path for path, value in _iter_leaves(run.config) if value == MISSING]
    # verl's own configuration leaves open what only some runs need.
    missing = [path for path in missing if path in _ALWAYS or run.default(path) != MISSING]
    return [fail(f"{path} is not set", f"add {path}=... to the command line") for path in missing]


def _iter_leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _iter_leaves(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, tree
