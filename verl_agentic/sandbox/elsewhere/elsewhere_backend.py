"""Backends whose machines belong to a provider. A machine is a sandbox, with a box in it as in a container."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Sequence
from typing import Any

from verl_agentic.base.errors import ConfigError, SandboxError, SandboxUnavailableError, boundary
from verl_agentic.sandbox.elsewhere.guest_client import GuestClient, GuestMachine, call, start_box
from verl_agentic.sandbox.elsewhere.machines import ElsewhereConfig, Provider, missing_key
from verl_agentic.sandbox.interface import Tree
from verl_agentic.sandbox.source_trees import refuse_image


class ElsewhereBackend:
    """Sandboxes of a provider."""

    def __init__(self, provider: Provider, config: ElsewhereConfig) -> None:
        self._provider, self._config = provider, config
        self._is_started = False
        self._clients: set[GuestClient] = set()
        self._makes: set[asyncio.Task[Any]] = set()

    @property
    def name(self) -> str:
        """Name in the configuration."""
        return self._provider.name

    @property
    def isolation(self) -> str:
        """Isolation between machines, as the provider documents it."""
        return self._provider.isolation

    async def start(self) -> None:
        """Makes the client of the provider; no machine yet.

        Raises:
            ConfigError: the environment has no key.
            MissingDependencyError: the provider's library is not installed.
            SandboxUnavailableError: the library could not be started.
        """
        if not self._is_started:
            if missing := missing_key(self._provider):
                raise ConfigError(
                    f"the backend {self.name} needs a key, got no {missing} in the environment; set it there, not in "
                    "the config"
                )
            with boundary(SandboxUnavailableError, f"starting the client of {self.name}"):
                await self._provider.start()
            self._is_started = True

    async def create(self, *, trees: Sequence[Tree] = (), image: str | None = None) -> GuestClient:
        """Makes a machine; see `Backend.create`. A cancelled call still removes the machine."""
        if not self._provider.has_images:
            refuse_image(self.name, image)
        if not self._is_started:
            raise SandboxError("the backend is not started, got a call of create; await start() first")
        making = asyncio.ensure_future(self._make_client(trees, image))
        self._makes.add(making)
        making.add_done_callback(self._makes.discard)
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            closing = asyncio.ensure_future(_close_made(making))
            self._makes.add(closing)
            closing.add_done_callback(self._makes.discard)
            raise

    async def close(self) -> None:
        """Removes all machines."""
        while self._makes:
            await asyncio.gather(*self._makes, return_exceptions=True)
        await asyncio.gather(*(client.close() for client in list(self._clients)))
        if self._is_started:
            self._is_started = False
            await self._provider.close()

    async def _make_client(self, trees: Sequence[Tree], image: str | None) -> GuestClient:
        create = functools.partial(self._provider.create, image)
        work = call(self._provider, self._config, create, action="making a machine", is_new=True)
        try:
            machine = GuestMachine(
                await asyncio.wait_for(work, self._config.start_s), provider=self._provider, config=self._config
            )
        except asyncio.TimeoutError as cause:
            raise SandboxUnavailableError(
                f"{self.name} made no machine within {self._config.start_s:g} s; raise start_s, or make fewer at once"
            ) from cause
        try:
            client = await start_box(machine, self._config, on_closed=lambda: self._clients.discard(client))
        except BaseException:
            await asyncio.shield(machine.ended())
            raise
        self._clients.add(client)
        try:
            await client.place(trees)
        except BaseException:
            await asyncio.shield(client.close())
            raise
        return client


async def _close_made(making: asyncio.Task[GuestClient]) -> None:
    with contextlib.suppress(Exception):
        await (await making).close()
