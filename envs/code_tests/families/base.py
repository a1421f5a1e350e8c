"""Families of tasks, and the outputs of their reference solutions."""

from __future__ import annotations

import json
import random
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any

Parameters = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Family:
    """Tasks that differ in their parameters."""

    name: str
    draw: Callable[[random.Random], dict[str, Any]]
    """Random numbers -> parameters; their names are those of constants in `body`."""
    statement: Callable[[Parameters], str]
    """The statement for the policy."""
    body: str
    """The reference solution below its constants: a program, or with `fn_name` a function of that name."""
    inputs: Callable[[random.Random, Parameters, int], Any]
    """Random numbers, parameters and a size from 0 to 3 -> the text that a program reads, or a list of arguments."""
    fn_name: str | None = None
    """Name of the function; None when the task is a program that reads and prints."""

    def test_input(self, rng: random.Random, parameters: Parameters, size: int) -> str:
        """Returns one input, as `graders.code.run_tests.CodeTests` takes it."""
        arguments = self.inputs(rng, parameters, size)
        return arguments if self.fn_name is None else "\n".join(json.dumps(argument) for argument in arguments)


def reference_solution(family: Family, parameters: Parameters) -> str:
    """Returns the source of the solution."""
    constants = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
    return f"{constants}\n\n{textwrap.dedent(family.body).strip()}\n"


def reference_output(family: Family, parameters: Parameters, text: str) -> str:
    """Returns the solution's output for an input, or its return value as JSON."""
    lines = iter(text.split("\n"))
    printed: list[str] = []

    def say(*values: Any, sep: str = " ") -> None:
        printed.append(sep.join(map(str, values)))

    names: dict[str, Any] = {"input": lambda: next(lines), "print": say}
    exec(_compile_source(reference_solution(family, parameters)), names)
    if family.fn_name is None:
        return "\n".join(printed)
    return json.dumps(names[family.fn_name](*[json.loads(line) for line in text.split("\n")]))


@lru_cache(maxsize=16)
def _compile_source(source: str) -> CodeType:
    return compile(source, "reference", "exec")


def words(rng: random.Random, count: int, *, letters: str = "abcdefgh", longest: int = 8) -> list[str]:
    """Returns random words."""
    return ["".join(rng.choices(letters, k=rng.randint(1, longest))) for _ in range(count)]


def numbers(rng: random.Random, count: int, low: int, high: int) -> list[int]:
    """Returns random whole numbers."""
    return [rng.randint(low, high) for _ in range(count)]


def by_size(size: int, counts: Sequence[int]) -> int:
    """Returns the length of an input of a size from 0 to 3."""
    return counts[min(size, len(counts) - 1)]
