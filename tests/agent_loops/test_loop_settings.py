"""The section `rollout.custom.agentic`: read once, refused with the key, and the step's values from the schedules."""

from __future__ import annotations

from typing import Any

import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.episode.loop_settings import LoopSettings, read_loop_settings


def read(**values: Any) -> LoopSettings:
    return read_loop_settings(values, section="agentic", max_response_tokens=64, max_context_tokens=128)


def test_schedules_give_the_values_of_a_step() -> None:
    settings = read(
        limits={"max_turns": 5},
        max_turns_schedule={"stages": [10, 20], "every": 100},
        exploration={"epsilon_tool": 0.25, "partial_solution": {"start": 0.75, "end": 0.0, "steps": 100}},
    )
    assert [settings.limits_at(step).max_turns for step in (1, 100, 101)] == [10, 10, 20]
    assert settings.limits.max_turns == 5  # what validation uses
    found = [settings.exploration.at(step, seed="a") for step in (0, 50, 100)]
    assert [(e.epsilon_tool, e.partial_solution) for e in found] == [(0.25, 0.75), (0.25, 0.375), (0.25, 0.0)]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"envs": "x"}, "'envs'"),
        ({"exploration": {"epsilon_tool": 2}}, "agentic.exploration.epsilon_tool"),
        ({"max_turns_schedule": 7}, "agentic.max_turns_schedule"),
        ({"max_turns_schedule": {"stages": [0, 5], "every": 3}}, "agentic.max_turns_schedule"),
        ({"temperature_schedule": {"start": 1}}, "agentic.temperature_schedule"),
        ({"compaction": {"keep_last": 2}}, "'strategy'"),
        ({"limits": {"answer_reserve_tokens": 64}}, "agentic.limits.answer_reserve_tokens"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_key(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read(**values)
