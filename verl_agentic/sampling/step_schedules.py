"""Values that change with the training step. They depend on the step alone, so a resumed run goes on where it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl_agentic.errors import ConfigError
from verl_agentic.settings import Settings, read_settings, setting


@dataclass(frozen=True, kw_only=True)
class StageSchedule(Settings):
    """A value that goes from stage to stage: the horizon of ScalingInter-RL.

    `v(step) = stages[min((step - 1) // every, len(stages) - 1)]`, steps counted from 1.

    Paper: https://arxiv.org/abs/2509.08755. Deviations: the authors' code counts a resumed run's first step as one of a
    new round; this does not.
    """

    stages: Sequence[float]
    every: int = setting(min=1)
    """Steps of a stage."""

    def check_together(self) -> None:
        if not self.stages:
            raise ConfigError("stages must hold a number, got []; add one")

    @property
    def minimum(self) -> float:
        """The smallest value."""
        return min(self.stages)

    def at(self, step: int) -> float:
        """Returns the value at a training step (from 1)."""
        return self.stages[min(max(step - 1, 0) // self.every, len(self.stages) - 1)]


@dataclass(frozen=True, kw_only=True)
class LinearSchedule(Settings):
    """A value that goes from one to another in a straight line, and stays there.

    `v(step) = start + (end - start) * min(step, steps) / steps`.
    """

    start: float
    end: float
    steps: int = setting(min=1)
    """Steps until `end` is reached."""

    @property
    def minimum(self) -> float:
        """The smallest value."""
        return min(self.start, self.end)

    def at(self, step: int) -> float:
        """Returns the value at a training step."""
        return self.start + (self.end - self.start) * min(max(step, 0), self.steps) / self.steps


@dataclass(frozen=True)
class Constant:
    """A value that does not change."""

    value: float

    @property
    def minimum(self) -> float:
        """The value."""
        return self.value

    def at(self, step: int) -> float:
        """Returns the value."""
        return self.value


Schedule = StageSchedule | LinearSchedule | Constant


def to_schedule(value: Any, *, name: str) -> Schedule:
    """Returns the schedule that a configuration writes as a number, as `{stages, every}` or as `{start, end, steps}`.

    Raises:
        ConfigError: it is none of them.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Constant(float(value))
    if isinstance(value, Mapping):
        for kind in (StageSchedule, LinearSchedule):
            if set(value) == set(kind.__dataclass_fields__):
                return read_settings(kind, value, section=name)
    raise ConfigError(
        f"{name} must be a number, {{stages, every}} or {{start, end, steps}}, got {value!r}; write one of them"
    )


def to_changing_schedule(value: Any, *, name: str) -> Schedule:
    """Returns the schedule that a configuration writes as `{stages, every}` or as `{start, end, steps}`.

    Raises:
        ConfigError: it is none of them.
    """
    if not isinstance(schedule := to_schedule(value, name=name), Constant):
        return schedule
    raise ConfigError(f"{name} must be {{stages, every}} or {{start, end, steps}}, got {value!r}; write one of them")
