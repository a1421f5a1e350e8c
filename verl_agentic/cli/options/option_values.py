"""Types of options: bounded numbers, and KEY=VALUE."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any

from verl_agentic.base.errors import ConfigError

MAX_PORT = 65_535


def whole(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """Returns the type of an option that takes whole numbers from `minimum` to `maximum`."""
    bounds = f"of {minimum} or more" if maximum is None else f"from {minimum} to {maximum}"

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = minimum - 1
        if number < minimum or (maximum is not None and number > maximum):
            raise argparse.ArgumentTypeError(f"must be a whole number {bounds}, got {text!r}")
        return number

    return parse


def positive(text: str) -> float:
    """Returns a number above 0; the type of options in seconds."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not number > 0:
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return number


def parse_key_values(texts: Sequence[str], *, option: str) -> dict[str, Any]:
    """Returns key -> value; values are JSON, or else text.

    Raises:
        ConfigError: an option has no `=`, or a key is repeated.
    """
    values: dict[str, Any] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key or key in values:
            raise ConfigError(f"{option} takes KEY=VALUE, each key once, got {text!r}")
        values[key] = parse_value(value)
    return values


def parse_value(value: str) -> Any:
    """Returns the value of JSON, or else the text."""
    try:
        return json.loads(value)
    except ValueError:
        return value
