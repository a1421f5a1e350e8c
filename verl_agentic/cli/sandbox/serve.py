"""`verl-agentic sandbox serve`: sandboxes for other machines, with SandboxFusion's contract."""

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

from verl_agentic.cli.sandbox.options import add_backend_options, backend_of
from verl_agentic.errors import ConfigError, MissingDependencyError

_GRACE_S = 30
_TOKEN_VARIABLE = "VERL_AGENTIC_SANDBOX_TOKEN"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_backend_options(parser)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at; default: %(default)s")
    parser.add_argument("--port", type=int, default=8080, help="0 for any that is free; default: %(default)d")
    parser.add_argument("--size", type=int, help="executions at one time; default: two per core")
    parser.add_argument("--queue", type=int, default=1_000, help="requests that may wait; default: %(default)d")
    parser.add_argument(
        "--queue-timeout", type=float, default=8.0, help="longest wait, in seconds; default: %(default)g"
    )
    parser.add_argument("--token-file", type=Path, help=f"file with the token; or set {_TOKEN_VARIABLE}")


def run(args: argparse.Namespace) -> int:
    """Serves until SIGINT or SIGTERM, then answers what it has begun, for 30 s at most."""
    try:
        import uvicorn  # noqa: F401
    except ImportError as cause:
        raise MissingDependencyError(
            f"serving sandboxes needs fastapi and uvicorn, got {cause}; pip install 'verl-agentic[serve]'"
        ) from cause
    token = _token(args.token_file)
    if not token and not _is_loopback(args.host):
        raise ConfigError(
            f"a server that other machines reach needs a token, got host {args.host} without one; give --token-file"
        )
    asyncio.run(_serve(args, token))
    return 0


async def _serve(args: argparse.Namespace, token: str) -> None:
    from verl_agentic.sandbox.server import SandboxServer, ServerConfig, make_app

    size = {} if args.size is None else {"size": args.size}
    config = ServerConfig(max_waiting=args.queue, queue_timeout_s=args.queue_timeout, token=token, **size)
    backend = backend_of(args)
    server = SandboxServer(backend, config)
    try:
        listening = socket.create_server((args.host, args.port))
    except OSError as cause:
        raise ConfigError(f"cannot listen at {args.host}:{args.port}, got {cause}; choose another --port") from cause
    with listening:
        try:
            await server.start()
            http = _make_http(make_app(server))
            health = server.health()
            url = f"http://{args.host}:{listening.getsockname()[1]}/run_code"
            print(f"serving {health['backend']} at {url}, size {health['size']}, languages "
                  f"{', '.join(health['languages'])}", flush=True)  # fmt: skip
            await http.serve([listening])
        finally:
            await server.close()


def _make_http(app: Any) -> Any:
    import uvicorn

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            # uvicorn would raise the signal again when it has ended, before the sandboxes are closed.
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


def _token(path: Path | None) -> str:
    if path is None:
        return os.environ.get(_TOKEN_VARIABLE, "").strip()
    try:
        token = path.read_text().strip()
    except OSError as cause:
        raise ConfigError(f"the token file cannot be read, got {cause}") from cause
    if not token:
        raise ConfigError(f"the token file must hold a token, got an empty {path}")
    return token


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
