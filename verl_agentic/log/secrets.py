"""Removes secrets from logs: values of environment variables that are named like secrets."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|COOKIE", re.IGNORECASE)
_NOT_SECRET = re.compile(r"TOKENIZERS?_|_PATH$|_FILE$|_DIR$|AUTHORITY|AUTH_SOCK", re.IGNORECASE)
_MIN_CHARS = 8
"""Minimum length; shorter values would match ordinary text."""
Decode = Callable[[Sequence[int]], str]


class Secrets:
    """The secrets of an environment."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """Reads this process's environment, or the one given."""
        variables = secret_variables(os.environ if environment is None else environment)
        values = {value: f"[{name}]" for name, value in variables.items() if len(value) >= _MIN_CHARS}
        # JSON escapes quotes and line breaks.
        values |= {json.dumps(value)[1:-1]: mark for value, mark in values.items()}
        self._marks = values
        # Longer ones first, because one may be part of another.
        escaped = "|".join(re.escape(value) for value in sorted(values, key=len, reverse=True))
        self._pattern = re.compile(escaped) if escaped else None

    def __bool__(self) -> bool:
        """Returns whether there are any."""
        return self._pattern is not None

    def occur_in(self, text: str) -> bool:
        """Returns whether a text contains a secret."""
        return self._pattern is not None and self._pattern.search(text) is not None

    def removed(self, value: Any) -> Any:
        """Returns a value with the variable's name in brackets for every secret in its strings, however deep."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self._pattern.sub(lambda match: self._marks[match.group()], value)
        if isinstance(value, Mapping):
            return {self.removed(key): self.removed(item) for key, item in value.items()}
        if isinstance(value, list | tuple) and value and not isinstance(value[0], int | float):
            return type(value)(self.removed(item) for item in value)
        return value


def secret_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of an environment that are named like secrets."""
    return {name: value for name, value in environment.items() if _NAME.search(name) and not _NOT_SECRET.search(name)}


@functools.cache
def own_secrets() -> Secrets:
    """Returns the secrets of this process."""
    return Secrets()


WITHHELD = -1
"""Replaces a token of a secret."""


def withhold(ids: Sequence[int], spans: Sequence[tuple[int, int]], *, decode: Decode, secrets: Secrets) -> list[int]:
    """Returns token ids with `WITHHELD` in every span `[start, end)` whose text contains a secret."""
    new_ids = list(ids)
    for start, end in spans:
        if secrets.occur_in(decode(new_ids[start:end])):
            new_ids[start:end] = [WITHHELD] * (end - start)
    return new_ids
