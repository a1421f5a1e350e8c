"""`verl-agentic sandbox serve`: serves sandboxes to other machines, with SandboxFusion's contract."""

from __future__ import annotations

import argparse
import asyncio

from verl_agentic.cli.options.option_values import MAX_PORT, positive, whole
from verl_agentic.sandbox.cli.limit_options import add_backend_options, backend_of
from verl_agentic.web.listening.listening_options import add_listening_options, listen, print_use, token_of
from verl_agentic.web.listening.listening_socket import url_of

_TOKEN_VARIABLE = "VERL_AGENTIC_SANDBOX_TOKEN"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_backend_options(parser)
    add_listening_options(parser, port=8080, port_type=whole(0, MAX_PORT), token_variable=_TOKEN_VARIABLE)
    parser.add_argument("--size", type=whole(1), help="run this many programs at once (default: two per core)")
    parser.add_argument(
        "--queue", type=whole(0), default=1_000, help="let at most this many requests wait (default %(default)d)"
    )
    parser.add_argument(
        "--queue-timeout",
        type=positive,
        default=8.0,
        help="refuse a request after this many seconds in the queue (default %(default)g)",
    )


def run(args: argparse.Namespace) -> int:
    """Serves until SIGINT or SIGTERM, then finishes running requests, for 30 s at most."""
    asyncio.run(_serve_sandboxes(args, *token_of(args, token_variable=_TOKEN_VARIABLE)))
    return 0


async def _serve_sandboxes(args: argparse.Namespace, token: str, is_made: bool) -> None:
    from verl_agentic.sandbox.pools.run_code_server import SandboxServer, ServerConfig, make_app
    from verl_agentic.web.listening.guarded_server import GuardedServer

    size = {} if args.size is None else {"size": args.size}
    config = ServerConfig(max_waiting=args.queue, queue_timeout_s=args.queue_timeout, token=token, **size)
    backend = backend_of(args)
    server = SandboxServer(backend, config)
    with listen(args) as listening:
        try:
            await server.start()
            http = GuardedServer(make_app(server))
            health = server.health()
            url = f"{url_of(listening, host=args.host)}/run_code"
            print(f"serving {health['backend']} at {url}, size {health['size']}, languages "
                  f"{', '.join(health['languages'])}", flush=True)  # fmt: skip
            use = f"VERL_AGENTIC_SANDBOX_URL={url} COMMAND"
            print_use(use, token=token, token_variable=_TOKEN_VARIABLE, is_made=is_made)
            await http.serve([listening])
        finally:
            await server.close()
