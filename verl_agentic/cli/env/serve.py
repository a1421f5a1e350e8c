"""`verl-agentic env serve ENV`: serves an environment to trainers on other machines or in other interpreters."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from verl_agentic.cli.options.http_options import add_listening_options, listen, make_http, token_of
from verl_agentic.cli.options.key_values import parse_key_values
from verl_agentic.cli.options.numbers import positive, whole

_TOKEN_VARIABLE = "VERL_AGENTIC_ENV_TOKEN"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("env", help="serve this environment: the name of a bundled one, a folder, or a module")
    add_listening_options(parser, port=8090, token_variable=_TOKEN_VARIABLE)
    parser.add_argument(
        "--max-sessions",
        type=whole(1),
        default=256,
        metavar="N",
        help="keep at most N environments; clients wait for a free one (default %(default)d)",
    )
    parser.add_argument(
        "--lease",
        type=positive,
        default=120.0,
        metavar="SECONDS",
        help="close an environment whose client gave no sign of life for this long (default %(default)g)",
    )
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="pass an argument to make_env, as JSON or text",
    )


def run(args: argparse.Namespace) -> int:
    """Serves until SIGINT or SIGTERM, then finishes running calls, for 30 s at most, and closes all environments."""
    token = token_of(args, token_variable=_TOKEN_VARIABLE)
    asyncio.run(_serve(args, token, parse_key_values(args.config, option="--config")))
    return 0


async def _serve(args: argparse.Namespace, token: str, env_config: dict[str, Any]) -> None:
    from verl_agentic.bridges.remote.server import make_app
    from verl_agentic.bridges.remote.sessions import EnvServerConfig, EnvSessions
    from verl_agentic.env_package import load_env_package

    config = EnvServerConfig(max_sessions=args.max_sessions, lease_s=args.lease, token=token)
    sessions = EnvSessions(load_env_package(args.env), env_config=env_config, config=config)
    with listen(args) as listening:
        try:
            await sessions.start()
            url = f"http://{args.host}:{listening.getsockname()[1]}"
            print(f"serving {args.env} at {url}, at most {config.max_sessions} sessions", flush=True)
            await make_http(make_app(sessions)).serve([listening])
        finally:
            await sessions.close()
