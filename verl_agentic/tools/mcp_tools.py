"""Tools of MCP servers, for environments.

class MyEnv(ToolEnv):
    async def start(self):
        self.mcp = McpTools({"files": {"command": "my-file-server", "args": ["/data"]}})
        self.use_tools([my_tool, *await self.mcp.open()])
        return self.row.prompt

    async def close(self):
        await self.mcp.close()
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Mapping
from typing import Any

from verl_agentic.base.errors import ConfigError, EnvError
from verl_agentic.base.settings import read_settings
from verl_agentic.base.types import Tool
from verl_agentic.tools.mcp_connection import McpConnection, McpServer

_shared: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, list[McpConnection]]] = (
    weakref.WeakKeyDictionary()
)
"""Connections that episodes of an event loop share, by server."""


class McpTools:
    """The tools of MCP servers, open for one episode."""

    def __init__(self, servers: Mapping[str, Any], *, num_shared: int = 0) -> None:
        """Reads the settings; `open` connects.

        Args:
            servers: name of a server -> keys of `McpServer`.
            num_shared: number of connections to each server that all episodes of a worker share. A stateless server
                serves many episodes at once. 0: every episode starts its own, and ends it.

        Raises:
            ConfigError: no server, or a key is wrong.
        """
        if not servers or num_shared < 0:
            raise ConfigError(
                f"servers must be a section of MCP servers and num_shared >= 0, got {servers}, {num_shared}"
            )
        self._servers = {
            name: read_settings(McpServer, keys, section=f"servers.{name}") for name, keys in servers.items()
        }
        self._num_shared = num_shared
        self._own: list[McpConnection] = []

    async def open(self) -> list[Tool]:
        """Connects to all servers, and returns their tools.

        Raises:
            ConfigError, EnvError: as in `McpConnection.list_tools`.
        """
        connect = self._connect_shared if self._num_shared else self._connect_own
        tools = await asyncio.gather(*(connect(name, server) for name, server in self._servers.items()))
        return [tool for listed in tools for tool in listed]

    async def close(self) -> None:
        """Ends the connections of this episode; shared ones stay open until their event loop ends."""
        await asyncio.gather(*(connection.close() for connection in self._own))

    async def _connect_own(self, name: str, server: McpServer) -> list[Tool]:
        connection = McpConnection(name, server)
        self._own.append(connection)
        return [*await connection.list_tools()]

    async def _connect_shared(self, name: str, server: McpServer) -> list[Tool]:
        while True:
            connection, is_new = self._shared_connection(name, server)
            try:
                return [*await connection.list_tools()]
            except EnvError:
                await connection.close()
                if is_new:
                    raise  # else: it has died since its last use

    def _shared_connection(self, name: str, server: McpServer) -> tuple[McpConnection, bool]:
        """Returns the connection that was chosen the longest time ago, and whether it is new."""
        connections = _shared.setdefault(asyncio.get_running_loop(), {}).setdefault(f"{name}: {server}", [])
        connections[:] = [connection for connection in connections if connection.is_alive]
        is_new = len(connections) < self._num_shared
        connections.append(McpConnection(name, server, is_shared=True) if is_new else connections.pop(0))
        return connections[-1], is_new
