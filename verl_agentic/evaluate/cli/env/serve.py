"""`verl-agentic env serve ENV`: serves an environment to trainers on other machines or in other interpreters."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from typing import Any

from verl_agentic.cli.options.option_values import MAX_PORT, parse_key_values, whole
from verl_agentic.cli.options.typed_options import Options, add_options, declare, read_options
from verl_agentic.web.listening.listening_options import add_listening_options, listen, print_use, token_of
from verl_agentic.web.listening.listening_socket import url_of

_TOKEN_VARIABLE = "VERL_AGENTIC_ENV_TOKEN"


class EnvServeOptions(Options):
    """Options of the environment."""

    env: str = declare("serve this environment: the name of a bundled one, a folder, or a module", is_required=True,
                       is_positional=True)  # fmt: skip
    max_sessions: int = declare("keep at most N environments; clients wait for a free one (default %(default)d)", 256,
                                min=1, metavar="N")  # fmt: skip
    lease: float = declare("close an environment whose client gave no sign of life for this long (default "
                           "%(default)g)", 120.0, above=0, metavar="SECONDS")  # fmt: skip
    config: Sequence[str] = declare("pass an argument to make_env, as JSON or text", (), metavar="KEY=VALUE")
    client_config: Sequence[str] = declare("let clients set this argument of make_env or make_rows: to numbers, or to "
                                           "this value (default: none)", (), metavar="KEY[=VALUE]")  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_options(parser, EnvServeOptions)
    add_listening_options(parser, port=8090, port_type=whole(0, MAX_PORT), token_variable=_TOKEN_VARIABLE)


def run(args: argparse.Namespace) -> int:
    """Serves until SIGINT or SIGTERM, then finishes running calls, for 30 s at most, and closes all environments."""
    token = token_of(args, token_variable=_TOKEN_VARIABLE)
    asyncio.run(_serve_env(args, read_options(EnvServeOptions, args), *token))
    return 0


def _read_choices(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Returns option -> values that a client may choose; none: numbers."""
    choices: dict[str, list[Any]] = {text: [] for text in texts if "=" not in text}
    for text in texts:
        if "=" in text:
            for name, value in parse_key_values([text], option="--client-config").items():
                choices.setdefault(name, []).append(value)
    return choices


async def _serve_env(args: argparse.Namespace, options: EnvServeOptions, token: str, is_made: bool) -> None:
    from verl_agentic.bridges.remote.server import make_app
    from verl_agentic.bridges.remote.sessions import EnvServerConfig, EnvSessions
    from verl_agentic.episode.env_package import load_env_package
    from verl_agentic.web.listening.guarded_server import GuardedServer

    client_config = _read_choices(options.client_config)
    config = EnvServerConfig(
        max_sessions=options.max_sessions, lease_s=options.lease, token=token, client_config=client_config
    )
    env_config = parse_key_values(options.config, option="--config")
    sessions = EnvSessions(load_env_package(options.env), env_config=env_config, config=config)
    with listen(args) as listening:
        try:
            await sessions.start()
            url = url_of(listening, host=args.host)
            print(f"serving {options.env} at {url}, at most {config.max_sessions} sessions", flush=True)
            use = f"VERL_AGENTIC_ENV_URL={url} verl-agentic env validate remote"
            print_use(use, token=token, token_variable=_TOKEN_VARIABLE, is_made=is_made)
            await GuardedServer(make_app(sessions)).serve([listening])
        finally:
            await sessions.close()
