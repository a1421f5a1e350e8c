"""Options and shutdown of commands that serve over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ipaddress
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from verl_agentic.cli.options.numbers import MAX_PORT, whole
from verl_agentic.errors import ConfigError, MissingDependencyError

_GRACE_S = 30


def add_listening_options(parser: argparse.ArgumentParser, *, port: int, token_variable: str) -> None:
    """Adds `--host`, `--port` and `--token-file`."""
    parser.add_argument("--host", default="127.0.0.1", help="listen at this address (default %(default)s)")
    parser.add_argument(
        "--port",
        type=whole(0, MAX_PORT),
        default=port,
        help="listen at this port; 0 for a free one (default %(default)d)",
    )
    parser.add_argument(
        "--token-file", type=Path, help=f"read the token from this file (default: from {token_variable})"
    )


def token_of(args: argparse.Namespace, *, token_variable: str) -> str:
    """Returns the token that clients must send; empty without one.

    Raises:
        MissingDependencyError: fastapi or uvicorn is not installed.
        ConfigError: the file cannot be read or is empty, or other machines could connect without a token.
    """
    try:
        import uvicorn  # noqa: F401
    except ImportError as cause:
        raise MissingDependencyError(
            f"serving needs fastapi and uvicorn, got {cause}; pip install 'verl-agentic[serve]'"
        ) from cause
    token = read_token(args.token_file, token_variable)
    if not token and not is_loopback(args.host):
        raise ConfigError(
            f"a server that other machines reach needs a token, got host {args.host} without one; give --token-file"
        )
    return token


def listen(args: argparse.Namespace) -> socket.socket:
    """Returns the listening socket.

    Raises:
        ConfigError: the address is in use or does not belong to this machine.
    """
    try:
        listening = socket.create_server((args.host, args.port))
    except OSError as cause:
        raise ConfigError(f"cannot listen at {args.host}:{args.port}, got {cause}; choose another --port") from cause
    # asyncio sets this on sockets that it makes itself. Without it, an answer in two parts waits 40 ms for the second.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def make_http(app: Any) -> Any:
    """Returns a server whose `serve([socket])` ends after SIGINT or SIGTERM, once running requests are finished."""
    import uvicorn

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            # uvicorn would raise the signal again at its end, before the application is closed.
            loop = asyncio.get_running_loop()
            signals = (signal.SIGINT, signal.SIGTERM)
            for number in signals:
                loop.add_signal_handler(number, self.handle_exit, number, None)
            try:
                yield
            finally:
                for number in signals:
                    loop.remove_signal_handler(number)

    config = uvicorn.Config(
        app, lifespan="off", log_level="warning", access_log=False, timeout_graceful_shutdown=_GRACE_S
    )
    return Server(config)


def read_token(path: Path | None, variable: str) -> str:
    """Returns the token from a file, or without a file from an environment variable.

    Raises:
        ConfigError: the file cannot be read or is empty.
    """
    if path is None:
        return os.environ.get(variable, "").strip()
    try:
        token = path.read_text().strip()
    except OSError as cause:
        raise ConfigError(f"the token file cannot be read, got {cause}") from cause
    if not token:
        raise ConfigError(f"the token file must hold a token, got an empty {path}")
    return token


def is_loopback(host: str) -> bool:
    """Returns whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
