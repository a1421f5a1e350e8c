"""Environments use the sandboxes of the process or of the node; other owners are refused."""

from __future__ import annotations

from typing import Any

import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.sandbox.pools.pool_owner import pool_of
from verl_agentic.sandbox.pools.process_pool import shared_pool
from verl_agentic.verl.extensions.node_pool import NodePool


def test_a_process_shares_one_pool() -> None:
    assert pool_of("process", "local", at_least="none") is shared_pool("local", at_least="none")


def test_a_node_has_one_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    assert isinstance(pool_of("node", "local", at_least="none"), NodePool)


def test_that_of_a_node_needs_ray() -> None:
    with pytest.raises(ConfigError, match=r"ray\.init"):
        pool_of("node", "local", at_least="none")


def test_nobody_else_has_one() -> None:
    with pytest.raises(ConfigError, match="pool"):
        pool_of("rack", "local", at_least="none")  # type: ignore[arg-type]


def test_disk_space_goes_to_the_backends_that_limit_it() -> None:
    limited: dict[str, Any] = {name: {"disk_mb": 256} for name in ("namespaces", "docker", "landlock")}
    auto = pool_of("process", "auto", at_least="landlock", disk_mb=256)
    assert auto is shared_pool("auto", at_least="landlock", **limited)
    assert auto is not pool_of("process", "auto", at_least="landlock")
    named = pool_of("process", "landlock", at_least="landlock", disk_mb=256)
    assert named is shared_pool("landlock", at_least="landlock", disk_mb=256)
    assert pool_of("process", "local", at_least="none", disk_mb=256) is shared_pool("local", at_least="none")
