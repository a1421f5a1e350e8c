"""Rows from families: a statement, public tests, and hidden tests."""

from __future__ import annotations

import json
import random
import re
import zlib
from collections import deque
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from verl_agentic import ConfigError, EnvRow, Message
from verl_agentic.graders.code.task_prompts import WITH_TESTS, WITHOUT_TESTS

from .families import FAMILIES, Family, Parameters, reference_output, reference_solution

Split = Literal["train", "test"]
_TEST_SHARE = 5  # one task in five belongs to the test split
_TRIES = 400  # attempts to find a new task, or a new input of a task
_PUBLIC_SIZES, _HIDDEN_SIZES = (0, 1, 1, 2), (0, 1, 2, 3, 2, 3, 1, 3)
_MOST_TESTS = 64
_LEAST_OUTPUTS = 3  # minimum number of different outputs of the hidden tests, so that no constant passes


@dataclass(frozen=True, kw_only=True)
class _Tests:
    inputs: Sequence[str]
    outputs: Sequence[str]

    def to_json(self, family: Family, **more: str) -> str:
        return json.dumps({"inputs": self.inputs, "outputs": self.outputs, "fn_name": family.fn_name, **more})


def make_rows(
    *,
    split: Split,
    count: int,
    seed: int,
    families: Sequence[str] | None = None,
    public_tests: int = 3,
    hidden_tests: int = 10,
    solution: bool = False,
) -> list[EnvRow]:
    """Returns `count` rows of different tasks; equal arguments give equal rows.

    A task is a family and its parameters; a fifth of all tasks belongs to the test split, whatever the seed. The tests
    of a task depend on the task alone, and no input is both public and hidden.

    Args:
        split: `train` or `test`.
        count: how many rows; the families take turns, as long as they have tasks left.
        seed: of the choice of tasks.
        families: names of some families; by default all.
        public_tests: tests of each task that the policy may run, up to 64. 0 is for `run_tests=False`.
        hidden_tests: hidden tests of each task, 3 to 64.
        solution: add the reference solution to the ground truth, for the component `ppocoder`.

    Raises:
        ConfigError: an unknown split or family, an invalid number of tests, or too few different tasks.
    """
    names = sorted(FAMILIES) if families is None else list(families)
    if split not in ("train", "test") or not names or not set(names) <= set(FAMILIES):
        raise ConfigError(f"split must be train or test, families some of {sorted(FAMILIES)}, got {split!r}, {names}")
    if not (0 <= public_tests <= _MOST_TESTS and _LEAST_OUTPUTS <= hidden_tests <= _MOST_TESTS):
        raise ConfigError(
            f"there must be 0 to {_MOST_TESTS} public and {_LEAST_OUTPUTS} to {_MOST_TESTS} hidden tests, got "
            f"{public_tests} and {hidden_tests}"
        )
    rng = random.Random(f"{split}/{seed}")
    rows: dict[str, EnvRow] = {}
    turns = deque(names)
    while len(rows) < count:
        if not turns:
            raise ConfigError(f"found only {len(rows)} different tasks of split {split!r}, got {count=}")
        family = FAMILIES[turns[0]]
        turns.rotate(-1)
        key, task = _new_task(family, rng, split=split, keys=rows, counts=(max(1, public_tests), hidden_tests))
        if task is None:
            turns.remove(family.name)  # it has no more tasks
        else:
            rows[key] = _build_row(family, *task, key=key, has_tool=public_tests > 0, has_solution=solution)
    return list(rows.values())


def _new_task(
    family: Family, rng: random.Random, *, split: Split, keys: Container[str], counts: tuple[int, int]
) -> tuple[str, tuple[Parameters, tuple[_Tests, _Tests]] | None]:
    """Returns the key of a new task, and its parameters and tests; None after many failed attempts."""
    key = ""
    for _ in range(_TRIES):
        parameters = family.draw(rng)
        key = f"{family.name}:{json.dumps(parameters, sort_keys=True)}"
        if key not in keys and _split_of(key) == split:
            tests = _make_tests(family, parameters, counts=counts, rng=random.Random(key))
            if tests is not None:
                return key, (parameters, tests)
    return key, None


def _split_of(key: str) -> Split:
    return "test" if zlib.crc32(key.encode()) % _TEST_SHARE == 0 else "train"


def _make_tests(
    family: Family, parameters: Parameters, *, counts: tuple[int, int], rng: random.Random
) -> tuple[_Tests, _Tests] | None:
    """Returns public and hidden tests without a common input; None if the task has too few different inputs."""
    sizes = [_PUBLIC_SIZES[i % len(_PUBLIC_SIZES)] for i in range(counts[0])]
    sizes += [_HIDDEN_SIZES[i % len(_HIDDEN_SIZES)] for i in range(counts[1])]
    inputs: list[str] = []
    for size in sizes:
        texts = (family.test_input(rng, parameters, min(3, size + tries // 20)) for tries in range(_TRIES))
        fresh = next((text for text in texts if text not in inputs), None)
        if fresh is None:
            return None
        inputs.append(fresh)
    outputs = [reference_output(family, parameters, text) for text in inputs]
    if len(set(outputs[counts[0] :])) < _LEAST_OUTPUTS:
        return None
    first, rest = slice(counts[0]), slice(counts[0], None)
    return _Tests(inputs=inputs[first], outputs=outputs[first]), _Tests(inputs=inputs[rest], outputs=outputs[rest])


def _build_row(
    family: Family,
    parameters: Parameters,
    tests: tuple[_Tests, _Tests],
    *,
    key: str,
    has_tool: bool,
    has_solution: bool,
) -> EnvRow:
    public, hidden = tests
    extra: Mapping[str, Any] = {
        "task_id": f"{family.name}-{zlib.crc32(key.encode()):08x}",
        "family": family.name,
        "parameters": json.dumps(parameters),
        **({"public_tests": public.to_json(family)} if has_tool else {}),
    }
    system = WITH_TESTS if has_tool else WITHOUT_TESTS
    solution = {"solution": reference_solution(family, parameters)} if has_solution else {}
    return EnvRow(
        prompt=(Message("system", system), Message("user", _build_request(family, parameters, public))),
        ground_truth=hidden.to_json(family, **solution),
        data_source="code_tests",
        extra=extra,
    )


def _build_request(family: Family, parameters: Parameters, public: _Tests) -> str:
    if family.fn_name is None:
        task = "Write a program that reads standard input and prints to standard output."
        example = f"Example input:\n{public.inputs[0]}\nExample output:\n{public.outputs[0]}"
    else:
        signature = re.search(rf"def ({family.fn_name}\(.*\)):", family.body)
        assert signature is not None
        task = f"Write the function {signature[1]}."
        arguments = ", ".join(public.inputs[0].split("\n"))
        example = f"Example: {family.fn_name}({arguments}) returns {public.outputs[0]} (both as JSON)."
    return f"{task} {family.statement(parameters)}\n\n{example}"
