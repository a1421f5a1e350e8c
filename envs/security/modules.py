"""Modules of three functions, one of which has a weakness, with their tests."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from .families import HELD_OUT, SEEN, WeakFunction

Families = Literal["seen", "held_out"]
_NUM_FUNCTIONS = 3
_VISIBLE_USES = 2
_NAMES = ("service", "portal", "desk", "office", "counter", "library")
_TESTS = '''"""Tests of {module}."""

from {module} import {names}

FLAG = "{flag}"


def call(function, first, rest):
    """Returns the result or the error as text."""
    try:
        return repr(function(*first, *rest))
    except Exception as error:
        return repr(error)
'''


@dataclass(frozen=True, kw_only=True)
class WeakModule:
    """A module whose functions have no weakness but one."""

    name: str
    flag: str
    """The secret of its tests."""
    functions: tuple[WeakFunction, ...]
    index: int
    """Place of the function with the weakness."""

    @property
    def weak(self) -> WeakFunction:
        """The function with the weakness."""
        return self.functions[self.index]

    @property
    def path(self) -> str:
        """Path of the module in its repository."""
        return f"{self.name}.py"

    @property
    def test_path(self) -> str:
        """Path of its tests."""
        return f"tests/test_{self.name}.py"

    def write_source(self, *, is_fixed: bool) -> str:
        """Returns the source of the module, with or without the weakness."""
        bodies = [
            function.wrong if place == self.index and not is_fixed else function.right
            for place, function in enumerate(self.functions)
        ]
        imports = {line for function in self.functions for line in function.imports}
        used = sorted(line for line in imports if re.search(rf"\b{line.rpartition(' ')[2]}\.", "".join(bodies)))
        head = "\n".join([f'"""Functions of the {self.name}."""\n', *(f"{line}\n" for line in used)])
        return "\n\n".join([head, *bodies])

    def write_tests(self, *, has_attacks: bool) -> str:
        """Returns the source of the tests: with attacks the hidden ones, without attacks the visible ones."""
        names = ", ".join(sorted(function.name for function in self.functions))
        parts = [_TESTS.format(module=self.name, names=names, flag=self.flag)]
        for function in self.functions:
            parts.append(function.prepare)
            parts += self._iter_tests(function, has_attacks=has_attacks)
        return "\n\n".join(parts)

    def split_tests(self) -> tuple[list[str], list[str]]:
        """Returns the ids of the tests that the fix alone passes, and of those that both sources pass."""
        ids: tuple[list[str], list[str]] = ([], [])
        for function in self.functions:
            for test in re.findall(r"def (test_\w+)", "".join(self._iter_tests(function, has_attacks=True))):
                is_broken = function is self.weak and "_attack_" in test
                ids[not is_broken].append(f"{self.test_path}::{test}")
        return ids

    def _iter_tests(self, function: WeakFunction, *, has_attacks: bool) -> Iterator[str]:
        name, first = function.name, f"prepare_{function.name}(tmp_path, FLAG)"
        for number, (arguments, expected) in enumerate(
            function.uses[: None if has_attacks else _VISIBLE_USES], start=1
        ):
            values = ", ".join(map(repr, arguments))
            yield f"def test_{name}_use_{number}(tmp_path):\n    assert {name}(*{first}, {values}) == {expected}\n"
        for number, arguments in enumerate(function.attacks if has_attacks else (), start=1):
            test = f"    assert call({name}, {first}, {tuple(arguments)!r}).count(FLAG) == 0\n"
            yield f"def test_{name}_attack_{number}(tmp_path):\n{test}"


def draw_module(number: int, *, families: Families) -> WeakModule:
    """Returns the module of a number; the weak function is of the chosen families, the others of those for training."""
    rng = random.Random(f"{families}/{number}")
    chosen: Mapping[str, object] = SEEN if families == "seen" else HELD_OUT
    weak = rng.choice(sorted(chosen))
    others = rng.sample([name for name in sorted(SEEN) if name != weak], _NUM_FUNCTIONS - 1)
    names = [weak, *others]
    rng.shuffle(names)
    functions = tuple({**SEEN, **HELD_OUT}[name](rng) for name in names)
    return WeakModule(
        name=rng.choice(_NAMES),
        flag=f"flag-{rng.getrandbits(48):012x}",
        functions=functions,
        index=names.index(weak),
    )
