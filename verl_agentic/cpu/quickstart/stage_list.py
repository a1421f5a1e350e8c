"""The key `stages` of course.yaml: read, named, and checked before anything runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import Settings, read_settings, setting
from verl_agentic.cpu.quickstart.course import Course
from verl_agentic.cpu.quickstart.run_state import MODEL, RECIPE
from verl_agentic.cpu.quickstart.stages import (
    AUTHORED,
    LOG,
    OUTCOMES,
    PAIRS,
    STAGES,
    CourseStage,
    ModelStage,
    TrainingStage,
)

_MAKERS = {
    LOG: "`- sample: {}` or `- rl: {}`",
    PAIRS: "`- export: {as: pairs}`",
    OUTCOMES: "`- export: {as: outcomes}`",
    AUTHORED: "`- export: {as: rows}`",
}
_NAME = re.compile(r"[A-Za-z]\w*")
_FOLDERS = ("base", "checkpoint", "data", "eval", "logs", "model", "phases", RECIPE)
"""Names in a run's folder that are no stage."""


class RepeatedStages(Settings):
    """Stages that run several times, each time from the models and data of the time before."""

    repeat: int = setting(min=1)
    """Number of times."""
    stages: tuple[Any, ...]
    """Stages, written as those of a course."""


def load_stages(course: Course) -> tuple[CourseStage, ...]:
    """Returns the stages of a course.

    Raises:
        ConfigError: see `read_stages`; or a recipe file is missing.
    """
    stages = read_stages(course.stages, name=f"course.yaml of {course.recipe!r}.stages")
    for stage in stages:
        if isinstance(stage, TrainingStage):
            course.named(stage.course).file(stage.recipe)
    return stages


def read_stages(value: Any, *, name: str) -> tuple[CourseStage, ...]:
    """Returns the stages of a list, each with its own name; those of `repeat` are listed as often as they run.

    Args:
        value: a list of sections, each with the kind of its stage as its key.
        name: path of the list, for errors.

    Raises:
        ConfigError: a stage has wrong keys, or lacks what it needs.
    """
    stages: list[CourseStage] = []
    counts: Counter[str] = Counter()
    products: set[str] = set()
    for path, stage in _iter_stages(value, name):
        base = stage.name or stage.kind
        counts[base] += 1
        stage = replace(stage, name=base if counts[base] == 1 else f"{base}_{counts[base]}")
        _check_place(stage, stages, products, path=path)
        products |= set(stage.products(Path()))
        stages.append(stage)
    if MODEL not in products:
        raise ConfigError(
            f"{name} must have one that trains a model, got {[stage.name for stage in stages]}; add `- sft: {{}}`"
        )
    return tuple(stages)


def _iter_stages(value: Any, name: str) -> Iterator[tuple[str, CourseStage]]:
    """Yields the stages of a list with their paths."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise ConfigError(f"{name} must be a list of stages, got {value!r}; write `- sft: {{}}` lines below it")
    for place, entry in enumerate(value):
        path = f"{name}[{place}]"
        if isinstance(entry, Mapping) and "repeat" in entry:
            repeat = read_settings(RepeatedStages, entry, section=path)
            for _ in range(repeat.repeat):
                yield from _iter_stages(repeat.stages, f"{path}.stages")
            continue
        kind = next(iter(entry), None) if isinstance(entry, Mapping) and len(entry) == 1 else None
        if kind is None or kind not in STAGES:
            raise ConfigError(f"{path} must have one key, a kind of stage, got {entry!r}; kinds: {[*STAGES, 'repeat']}")
        yield f"{path}.{kind}", STAGES[kind].read(entry[kind], section=f"{path}.{kind}")


def _check_place(stage: CourseStage, before: Sequence[CourseStage], products: set[str], *, path: str) -> None:
    """Raises ConfigError if the stages before lack what a stage needs, or its name is taken."""
    reserved_names = {*_FOLDERS, *(other.name for other in before)}
    if not _NAME.fullmatch(stage.name) or stage.name in reserved_names:
        raise ConfigError(
            f"{path}.name must have letters, digits and _, got {stage.name!r}; use none of {sorted(reserved_names)}"
        )
    if stage.needs is not None and stage.needs not in products:
        raise ConfigError(
            f"{path} needs {stage.needs} of a stage before it, got {[other.name for other in before]}; put "
            f"{_MAKERS[stage.needs]} before it"
        )
    models = [other.name for other in before if MODEL in other.products(Path())]
    if isinstance(stage, ModelStage) and stage.start and stage.start not in models:
        raise ConfigError(f"{path}.start must be one of the stages {models}, got {stage.start!r}; change it")
