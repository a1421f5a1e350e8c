"""Options of the sandbox backend."""

from __future__ import annotations

import argparse
from typing import Any

from verl_agentic.base.errors import ConfigError
from verl_agentic.cli.options.option_values import parse_value
from verl_agentic.sandbox.interface import Backend
from verl_agentic.sandbox.isolation import DEFAULT_ISOLATION, Isolation
from verl_agentic.sandbox.pools.backends import NAMES, make_backend


def add_backend_options(parser: argparse.ArgumentParser) -> None:
    """Adds `--backend`, `--at-least` and `--set`."""
    levels = [name.lower() for name in Isolation.__members__]
    parser.add_argument(
        "--backend", default="auto", choices=NAMES, help="use this backend (default: auto, the first that works)"
    )
    parser.add_argument(
        "--at-least",
        default=DEFAULT_ISOLATION.name.lower(),
        choices=levels,
        help="require at least this isolation (default: landlock)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set an option of the backend, as JSON or text: image=my/image; with auto: docker.image=my/image",
    )


def backend_of(args: argparse.Namespace) -> Backend:
    """Returns the backend that the options name.

    Raises:
        ConfigError: its isolation is too weak, or an option is unknown.
    """
    options: dict[str, Any] = {}
    for text in args.set:
        key, separator, value = text.partition("=")
        if not separator:
            raise ConfigError(f"--set takes KEY=VALUE, got {text!r}")
        *path, name = key.split(".")
        place = options
        for part in path:
            place = place.setdefault(part, {})
        place[name] = parse_value(value)
    return make_backend(args.backend, at_least=args.at_least, **options)
