"""Sockets of servers."""

from __future__ import annotations

import socket

from verl_agentic.base.errors import ConfigError

_ALL = ("0.0.0.0", "::")
_BACKLOG = 2_048


def open_socket(host: str, port: int) -> socket.socket:
    """Returns a listening socket. Raises ConfigError if the address is in use or does not belong to this machine."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host.strip("[]"), port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as cause:
        raise ConfigError(f"cannot listen at {host}:{port}, got {cause}; choose another --port") from cause
    # asyncio sets this on sockets that it makes itself. Without it, an answer in two parts waits 40 ms for the second.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def url_of(listening: socket.socket, *, host: str = "") -> str:
    """Returns the address of a listening socket; `host` is another name of it. All addresses: the machine's name."""
    host = host or str(listening.getsockname()[0])
    host = socket.gethostname() if host.strip("[]") in _ALL else host
    host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"http://{host}:{listening.getsockname()[1]}"
