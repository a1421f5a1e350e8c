"""A function with one weakness: both sources, the state it works on, its uses and the attacks on it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from string import Template
from textwrap import dedent
from typing import Any

Arguments = Sequence[Any]
"""JSON values: the arguments that a caller chooses."""


@dataclass(frozen=True, kw_only=True)
class WeakFunction:
    """A function, with and without its weakness.

    Its first arguments are those that `prepare` returns: the state on which it works, with a secret text in it. It must
    not return the secret, whatever the arguments of the caller.
    """

    weakness: str
    name: str
    imports: Sequence[str] = ()
    wrong: str
    right: str
    prepare: str
    """Source of `prepare_NAME(folder, flag)`."""
    uses: Sequence[tuple[Arguments, str]]
    """Arguments, and the source of what both forms return for them."""
    attacks: Sequence[Arguments]
    """Arguments for which the wrong form alone returns the secret."""


Draw = Callable[[random.Random], WeakFunction]
"""Draws names, constants and the form of the flaw."""


def fill(template: str, **names: object) -> str:
    """Returns a source with names in the place of `$name`."""
    return Template(dedent(template).strip("\n")).substitute(names) + "\n"
