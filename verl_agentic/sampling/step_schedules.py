"""Values that change with the training step. They depend only on the step, so a resumed run continues them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import Settings, read_settings, setting


class StageSchedule(Settings):
    """A value that changes in stages: the horizon of ScalingInter-RL.

    `v(step) = stages[min((step - 1) // every, len(stages) - 1)]`, steps counted from 1.

    Paper: https://arxiv.org/abs/2509.08755. Deviations: in the authors' code a resumed run starts a new stage.
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


class LinearSchedule(Settings):
    """A value that changes linearly from `start` to `end`, and then stays.

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
    """Reads a number, `{stages, every}` or `{start, end, steps}`. Raises ConfigError for another form."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Constant(float(value))
    if isinstance(value, Mapping):
        for kind in (StageSchedule, LinearSchedule):
            if set(value) == set(kind.__dataclass_fields__):
                return read_settings(kind, value, section=name)
    raise ConfigError(f"{name} must be a number, {{stages, every}} or {{start, end, steps}}, got {value!r}; write one")


def to_changing_schedule(value: Any, *, name: str) -> Schedule:
    """Reads `{stages, every}` or `{start, end, steps}`. Raises ConfigError for another form."""
    if not isinstance(schedule := to_schedule(value, name=name), Constant):
        return schedule
    raise ConfigError(f"{name} must be {{stages, every}} or {{start, end, steps}}, got {value!r}; write one of them")
