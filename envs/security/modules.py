"""Modules of three functions, one of which has a weakness, with their tests."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from .families import HELD_OUT, SEEN, WeakFunction
from .families.base import FOLDER, draw_words

Families = Literal["seen", "held_out"]
_NUM_FUNCTIONS = 3
_VISIBLE_USES = 2
_NAMES = ("service", "portal", "desk", "office", "counter", "library")
_TESTS = '''"""Tests of {module}."""

from {module} import {names}

FLAG = "{flag}"


def show(function, first, rest):
    """Returns the result as text, or the error. A result consists of plain values."""
    try:
        result = function(*first, *rest)
    except Exception as error:
        return repr(error)
    values = [result]
    for value in values:
        if type(value) in (list, tuple, dict):
            values += value.items() if type(value) is dict else value
        else:
            assert value is None or type(value) in (str, int, float, bool), type(value)
    return repr(result)
'''


@dataclass(frozen=True, kw_only=True)
class WeakModule:
    """A module whose functions have no weakness but one."""

    name: str
    flags: tuple[str, str]
    """The secrets of its visible and of its hidden tests."""
    functions: tuple[WeakFunction, ...]
    index: int
    """Place of the function with the weakness."""
    order: int
    """Seed of the order of the hidden tests of a function. Their names do not tell attacks from uses, because code can
    read them: `tmp_path` has the name of its test."""

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

    def write_tests(self, *, is_hidden: bool) -> str:
        """Returns the source of the tests: the hidden ones with attacks, or the visible ones."""
        names = ", ".join(sorted(function.name for function in self.functions))
        parts = [_TESTS.format(module=self.name, names=names, flag=self.flags[is_hidden])]
        for function in self.functions:
            parts.append((function.hidden if is_hidden else function.shown).prepare)
            parts += [test for _, test, _ in self._iter_tests(function, is_hidden=is_hidden)]
        return "\n\n".join(parts)

    def split_tests(self) -> tuple[list[str], list[str]]:
        """Returns the ids of the hidden tests that the fix alone passes, and of those that both sources pass."""
        ids: tuple[list[str], list[str]] = ([], [])
        for function in self.functions:
            for name, _, is_attack in self._iter_tests(function, is_hidden=True):
                is_broken = function is self.weak and is_attack
                ids[not is_broken].append(f"{self.test_path}::{name}")
        return ids

    def _iter_tests(self, function: WeakFunction, *, is_hidden: bool) -> Iterator[tuple[str, str, bool]]:
        """Yields name and source of a test, and whether it is an attack."""
        scene = function.hidden if is_hidden else function.shown
        checks = [(arguments, f" == {expected}", False) for arguments, expected in scene.uses]
        if is_hidden:
            checks += [(arguments, ".count(FLAG) == 0", True) for arguments in scene.attacks]
            random.Random(f"{self.order}/{function.name}").shuffle(checks)
        else:
            del checks[_VISIBLE_USES:]
        for number, (arguments, check, is_attack) in enumerate(checks, start=1):
            name = f"test_{function.name}_{number}"
            values = repr(tuple(arguments)).replace(f"'{FOLDER}", "f'{tmp_path}")
            call = f"show({function.name}, prepare_{function.name}(tmp_path, FLAG), {values})"
            yield name, f"def {name}(tmp_path):\n    assert {call}{check}\n", is_attack


def draw_module(number: int, *, families: Families) -> WeakModule:
    """Returns the module of a number; the weak function is of the chosen families, the others of those for training."""
    rng = random.Random(f"{families}/{number}")
    chosen: Mapping[str, object] = SEEN if families == "seen" else HELD_OUT
    weak = rng.choice(sorted(chosen))
    others = rng.sample([name for name in sorted(SEEN) if name != weak], _NUM_FUNCTIONS - 1)
    names = [weak, *others]
    rng.shuffle(names)
    flags = draw_words(rng, 2)
    functions = tuple({**SEEN, **HELD_OUT}[name](rng) for name in names)
    return WeakModule(
        name=rng.choice(_NAMES),
        flags=(flags[0], flags[1]),
        functions=functions,
        index=names.index(weak),
        order=rng.getrandbits(32),
    )
