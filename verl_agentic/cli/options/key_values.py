"""Options of the form KEY=VALUE."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from verl_agentic.base.errors import ConfigError


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
