"""A function with one weakness: both sources, the states it works on, its uses and the attacks on it."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from string import Template
from textwrap import dedent
from typing import Any

Arguments = Sequence[Any]
"""JSON values: the arguments that a caller chooses."""
FOLDER = "@folder"
"""Begins a path of a hidden attack; tests put the folder of `prepare` in its place."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A state on which a function works, and calls on it.

    Public values and the secret are words of one form, so that a function cannot find the secret by its form.
    """

    prepare: str
    """Source of `prepare_NAME(folder, flag)`."""
    uses: Sequence[tuple[Arguments, str]]
    """Arguments, and the source of the `repr` of what both forms return for them."""
    attacks: Sequence[Arguments]
    """Arguments for which the wrong form alone returns the secret."""


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
    shown: Scene
    """The state in prompts and in visible tests."""
    hidden: Scene
    """The state in hidden tests, with other names and values: knowing those of `shown` does not help."""


Draw = Callable[[random.Random], WeakFunction]
"""Draws names, constants and the form of the flaw."""


def fill(template: str, **names: object) -> str:
    """Returns a source with names in the place of `$name`."""
    return Template(dedent(template).strip("\n")).substitute(names) + "\n"


def fill_attacks(attacks: Sequence[str], **names: object) -> list[Arguments]:
    """Returns attacks of one argument, a text with names in the place of `$name`."""
    return [(Template(attack).substitute(names),) for attack in attacks]


def draw_words(rng: random.Random, count: int) -> list[str]:
    """Returns different words of random letters."""
    words: dict[str, None] = {}
    while len(words) < count:
        words["".join(rng.choices(string.ascii_lowercase, k=7))] = None
    return [*words]
