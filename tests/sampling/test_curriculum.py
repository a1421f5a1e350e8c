"""The registry of curricula and the section of the config."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import read_settings
from verl_agentic.sampling.curriculum import (
    CurriculumSettings,
    GroupSizeSettings,
    Pool,
    curriculum_names,
    load_curriculum,
)
from verl_agentic.sampling.prompts.pass_rates import PassRates

NAMES = ["by_source", "easy_to_hard", "failed_tasks", "hard_only", "hard_to_easy", "learnability", "mix", "value"]
OPTIONS: dict[str, dict[str, Any]] = {"by_source": {"stages": [{"sources": ["m"]}]}, "mix": {"ratios": {"m": 0.25}}}


@pytest.mark.parametrize("name", NAMES)
def test_every_curriculum_is_found_by_its_name_and_gives_what_it_says(name: str) -> None:
    found = load_curriculum(name)
    assert found.name == name
    pool = Pool(rates=PassRates(3), difficulty_N=np.array([2.0, 0.0, 1.0]), source_N=np.array(["m", "c", "m"]))
    given = found(pool, **OPTIONS.get(name, {}))
    assert sorted(given) == [0, 1, 2] if found.returns == "order" else given.shape == (3,)


def test_there_are_no_others() -> None:
    assert curriculum_names() == NAMES
    with pytest.raises(ConfigError, match="curious"):
        load_curriculum("curious")


def test_the_section_is_read_with_its_parts() -> None:
    settings = read_settings(
        CurriculumSettings, {"name": "learnability", "group_size": {"least": 4, "most": 32}}, section="data.curriculum"
    )
    assert settings.group_size == GroupSizeSettings(least=4, most=32)
    assert settings.outcome == "acc"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"name": "learnability", "speed": 1}, "'speed'"),
        ({"options": {}}, "'name'"),
        ({"name": "mix"}, "ratios"),
        ({"name": "value", "floor": 1.0}, "curriculum.floor"),
        ({"name": "value", "group_size": {"least": 4, "most": 2}}, "group_size.least"),
        ({"name": "value", "task_set": {"proposals": "p", "check": "f"}}, "task_set.check"),
    ],
)
def test_what_cannot_work_is_refused_with_its_key(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_settings(CurriculumSettings, section, section="data.curriculum")
