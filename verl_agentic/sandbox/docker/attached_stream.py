"""The stream of an attached container or exec: plain input, output in pieces with headers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from typing import Any

from verl_agentic.base.errors import SandboxUnavailableError

_HEADER = struct.Struct(">BxxxL")
STDOUT, STDERR = 1, 2
_STDERR_KEPT = 8_192


class StdoutReader(asyncio.StreamReader):
    """Reads stdout; keeps the end of stderr."""

    def __init__(self) -> None:
        super().__init__(limit=2**20, loop=asyncio.get_running_loop())
        self.stderr = bytearray()
        self._pending = bytearray()

    def feed_data(self, data: Any) -> None:
        """Takes any piece of the stream."""
        self._pending += data
        start = 0
        while len(self._pending) - start >= _HEADER.size:
            kind, size = _HEADER.unpack_from(self._pending, start)
            end = start + _HEADER.size + size
            if len(self._pending) < end:
                break
            content = self._pending[start + _HEADER.size : end]
            if kind == STDOUT:
                super().feed_data(content)
            else:
                self.stderr = (self.stderr + content)[-_STDERR_KEPT:]
            start = end
        del self._pending[:start]


async def open_stdio(attached: Any) -> tuple[StdoutReader, asyncio.StreamWriter]:
    """Returns the ends of a container's stdio.

    Args:
        attached: the SDK's attached container.

    Raises:
        SandboxUnavailableError: the connection to the engine has no socket to wait for.
    """
    loop, reader = asyncio.get_running_loop(), StdoutReader()
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, _own_socket(attached))
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def open_raw(attached: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Returns the ends of an exec's stdio, headers included."""
    return await asyncio.open_connection(sock=_own_socket(attached))


async def read_piece(reader: asyncio.StreamReader) -> tuple[int, int] | None:
    """Returns stream and size of the next piece; None at the end."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        return _HEADER.unpack(await reader.readexactly(_HEADER.size))
    return None


def _own_socket(attached: Any) -> socket.socket:
    """Returns a duplicate socket, because the SDK's closes with a response object that it drops."""
    inner_socket = getattr(attached, "_sock", attached)
    with contextlib.closing(getattr(attached, "_response", attached)):
        if isinstance(inner_socket, ssl.SSLSocket) or not isinstance(inner_socket, socket.socket):
            raise SandboxUnavailableError(
                f"containers can be attached over a Unix socket or plain TCP, got {type(inner_socket).__name__}; "
                "set DOCKER_HOST to unix://..., if need be at the end of a tunnel"
            )
        return inner_socket.dup()
