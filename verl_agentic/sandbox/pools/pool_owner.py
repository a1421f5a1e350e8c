"""Chooses between the pool of this process and that of this node."""

from __future__ import annotations

import importlib
from typing import Any, Literal

from verl_agentic.base.errors import ConfigError
from verl_agentic.sandbox.pools.process_pool import shared_pool
from verl_agentic.sandbox.pools.sandbox_pool import PoolConfig

PoolOwner = Literal["process", "node"]
# Imported by name, because only processes that share a pool import Ray, and this layer must not import adapters.
_NODE_POOL = "verl_agentic.verl.extensions.node_pool"


_LIMIT_DISKS = ("namespaces", "docker", "landlock")


def pool_of(
    owner: PoolOwner,
    backend: str,
    *,
    at_least: str | None,
    config: PoolConfig | None = None,
    disk_mb: int | None = None,
    **options: Any,
) -> Any:
    """Returns the pool of this process, or the one of this node, which needs Ray.

    Args:
        owner: `process` or `node`.
        backend: `auto`, `namespaces`, `docker`, `landlock`, `remote` or `local`.
        at_least: minimum isolation; None as in `backends.required`.
        config: size and bounds; None for the defaults.
        disk_mb: disk space of a sandbox, in MiB, of backends that limit it; None for their default.
        options: of the backend; see `make_backend`.

    Raises:
        ConfigError: unknown owner.
    """
    if disk_mb is not None and backend == "auto":
        options |= {name: {"disk_mb": disk_mb, **options.get(name, {})} for name in _LIMIT_DISKS}
    elif disk_mb is not None and backend in _LIMIT_DISKS:
        options["disk_mb"] = disk_mb
    if owner == "process":
        return shared_pool(backend, at_least=at_least, config=config, **options)
    if owner == "node":
        return importlib.import_module(_NODE_POOL).NodePool(backend, at_least=at_least, config=config, **options)
    raise ConfigError(f"pool must be 'process' or 'node', got {owner!r}")
