"""Environments of verifiers: made from their configuration, and their servers, which concurrent episodes share."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import logging
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any

from verl_agentic.base.env_card import needs_extra
from verl_agentic.base.errors import ConfigError
from verl_agentic.web.per_loop import SharedPerLoop

EXAMPLE = "verl_agentic_guessing_game"
_EXAMPLE_MODULE = "verl_agentic.bridges.verifiers.example_taskset"


def library() -> Any:
    """Returns `verifiers.v1`. Raises MissingDependencyError if it is not installed."""
    with needs_extra("verifiers", what="the environment verifiers"):
        vf = importlib.import_module("verifiers.v1")
    # It warns of every request that a budget refuses.
    logging.getLogger("verifiers.v1.interception.server").setLevel(logging.ERROR)
    return vf


def key_of(taskset: str, env: Mapping[str, Any] | None) -> str:
    """Returns a configuration as text; see `make_env`. The example is the taskset if there is no other."""
    config = dict(env or {})
    of_taskset = {"id": taskset or EXAMPLE, **dict(config.get("taskset") or {})}
    return json.dumps({**config, "taskset": of_taskset}, sort_keys=True, default=dict)


def load(key: str) -> Any:
    """Returns an environment.

    Raises:
        ConfigError: verifiers refuses the configuration, or the taskset is not installed.
        MissingDependencyError: verifiers is not installed.
    """
    vf = library()
    sys.modules.setdefault(EXAMPLE, importlib.import_module(_EXAMPLE_MODULE))  # verifiers finds a taskset by its module
    try:
        config = vf.resolve_env_config(json.loads(key))
        for name, role in config:
            # The default runtime is a paid service.
            if isinstance(role, vf.AgentConfig) and "runtime" not in role.model_fields_set:
                setattr(config, name, role.model_copy(update={"runtime": vf.SubprocessConfig()}))
        return vf.load_environment(config)
    except (ValueError, TypeError, AttributeError, ImportError) as cause:
        raise ConfigError(f"verifiers cannot make the environment {key}, got {cause}; change taskset or env") from cause


@contextlib.asynccontextmanager
async def serving(key: str) -> AsyncIterator[Any]:
    """Provides a running environment. The first user in an event loop starts its servers, the last one ends them."""
    async with servers.lend(key) as served:
        yield await asyncio.shield(served.env)


class _Served:
    """A running environment."""

    def __init__(self, key: str) -> None:
        self._stop = asyncio.Event()
        self.env: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._task = asyncio.ensure_future(self._serve_env(key))

    async def _serve_env(self, key: str) -> None:
        # In a task of its own, as the first user may end, or be cancelled, before the last one.
        try:
            env = await asyncio.to_thread(load, key)
            async with env.serving():
                self.env.set_result(env)
                await self._stop.wait()
        except Exception as cause:
            if not self.env.done():
                self.env.set_exception(cause)
                self.env.exception()  # retrieved: its users may have gone

    async def close(self) -> None:
        """Ends the servers."""
        self._stop.set()
        await asyncio.shield(asyncio.wait([self._task]))


servers: SharedPerLoop[str, _Served] = SharedPerLoop(_Served)
