"""Options of commands that serve over HTTP."""

from __future__ import annotations

import argparse
import os
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

from verl_agentic.base.errors import ConfigError
from verl_agentic.web.listening.listening_socket import open_socket
from verl_agentic.web.listening.request_guard import is_loopback


def add_listening_options(
    parser: argparse.ArgumentParser, *, port: int, token_variable: str, port_type: Callable[[str], int] = int
) -> None:
    """Adds `--host`, `--port` and `--token-file`."""
    parser.add_argument("--host", default="127.0.0.1", help="listen at this address (default %(default)s)")
    parser.add_argument(
        "--port", type=port_type, default=port, help="listen at this port; 0 for a free one (default %(default)d)"
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        help=f"read the token from this file (default: from {token_variable}; without it, a random one is printed)",
    )


def listen(args: argparse.Namespace) -> socket.socket:
    """Returns the listening socket. Raises ConfigError if the address cannot be used."""
    return open_socket(args.host, args.port)


def token_of(args: argparse.Namespace, *, token_variable: str) -> tuple[str, bool]:
    """Returns the token that clients must send, and whether it was made here, so that the user must be told.

    Raises:
        ConfigError: the file cannot be read or is empty, or other machines could connect and no token is set.
    """
    token = read_token(args.token_file, token_variable)
    if not token and not is_loopback(args.host):
        raise ConfigError(
            f"a server that other machines reach needs a token, got host {args.host} without one; give --token-file"
        )
    return token or secrets.token_urlsafe(24), not token


def print_use(command: str, *, token: str, token_variable: str, is_made: bool) -> None:
    """Prints a command that uses the server, with its token if the user does not know it."""
    if is_made:
        print(f"use: {token_variable}={token} {command}", flush=True)


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
