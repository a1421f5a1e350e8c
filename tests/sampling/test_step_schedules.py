"""Values that change with the training step: the vectors of the papers, and what happens on a resume."""

from __future__ import annotations

from typing import Any

import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.sampling.step_schedules import Constant, LinearSchedule, StageSchedule, to_schedule


def test_the_horizon_of_scaling_inter_rl_goes_from_stage_to_stage() -> None:
    horizon = StageSchedule(stages=[10, 20, 30], every=100)
    steps = [1, 100, 101, 200, 201, 1000]
    assert [horizon.at(step) for step in steps] == [10, 10, 20, 20, 30, 30]


def test_a_resumed_run_goes_on_with_the_horizon_it_had() -> None:
    # Resumed from step 100, the next steps are 101, 102, ...; a count from the resume on would begin a new round.
    resumed = StageSchedule(stages=[10, 20, 30], every=100)
    assert [resumed.at(step) for step in (101, 102, 199, 200)] == [20, 20, 20, 20]


def test_the_temperature_falls_in_a_straight_line_and_stays_there() -> None:
    temperature = LinearSchedule(start=1.2, end=0.7, steps=100)
    assert [temperature.at(step) for step in (0, 25, 50, 100, 150)] == pytest.approx([1.2, 1.075, 0.95, 0.7, 0.7])


def test_steps_before_the_first_have_its_value() -> None:
    assert StageSchedule(stages=[10, 20], every=5).at(0) == 10
    assert LinearSchedule(start=0.75, end=0.0, steps=4).at(-1) == 0.75


def test_a_constant_is_one() -> None:
    assert {Constant(0.3).at(step) for step in (0, 1, 10**6)} == {0.3}


@pytest.mark.parametrize(
    ("written", "at_51"),
    [
        (0.5, 0.5),
        (3, 3.0),
        ({"stages": [10, 20, 30], "every": 50}, 20),
        ({"start": 1.0, "end": 0.0, "steps": 100}, 0.49),
    ],
)
def test_a_configuration_writes_a_number_stages_or_a_line(written: Any, at_51: float) -> None:
    assert to_schedule(written, name="x").at(51) == pytest.approx(at_51)


@pytest.mark.parametrize(
    "written", [True, "0.5", None, [1, 2], {"stages": [1]}, {"start": 1.0, "end": 0.0, "steps": 3, "every": 1}]
)
def test_what_is_none_of_them_is_refused_by_name(written: Any) -> None:
    with pytest.raises(ConfigError, match="my_schedule"):
        to_schedule(written, name="my_schedule")


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ({"stages": [], "every": 3}, "stages"),
        ({"stages": [1], "every": 0}, "every"),
        ({"start": 1.0, "end": 0.0, "steps": 0}, "steps"),
    ],
)
def test_schedules_that_cannot_work_are_refused(written: Any, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"^x.{key} must .*, got (0|\[\]);"):
        to_schedule(written, name="x")
