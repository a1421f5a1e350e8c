"""Sources one after the other, and in fixed shares."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.sampling.curricula.by_source import by_source
from verl_agentic.sampling.curricula.mix import mix
from verl_agentic.sampling.curriculum import CurriculumSettings, Pool
from verl_agentic.sampling.prompt_sampler import PromptColumns, PromptSampler
from verl_agentic.sampling.prompts.pass_rates import PassRates

SOURCES = np.array(["math"] * 90 + ["code"] * 30 + ["reasoning"] * 10)
STAGES: list[dict[str, Any]] = [{"sources": ["math"], "steps": 5}, {"sources": ["code", "reasoning"]}]


def weights_at(step: int, stages: Any = STAGES) -> set[str]:
    weights = by_source(Pool(rates=PassRates(len(SOURCES)), step=step, source_N=SOURCES), stages=stages)
    assert set(weights) == {0.0, 1.0}
    return set(SOURCES[weights > 0].tolist())


def test_a_stage_ends_with_its_last_step() -> None:
    assert [weights_at(step) for step in (1, 5)] == [{"math"}] * 2
    assert [weights_at(step) for step in (6, 1000)] == [{"code", "reasoning"}] * 2
    three = [{"sources": ["code"], "steps": 2}, *STAGES]
    assert [weights_at(step, three) for step in (2, 3, 7, 8)] == [{"code"}, {"math"}, {"math"}, {"code", "reasoning"}]


def test_the_last_stage_goes_on_even_when_it_has_steps() -> None:
    assert weights_at(99, [{"sources": ["code"], "steps": 2}]) == {"code"}


@pytest.mark.parametrize("bad", [[], [{"sources": ["m"]}, {"sources": ["c"]}], [{"steps": 3}], ["m"]])
def test_stages_of_another_form_are_refused(bad: list[Any]) -> None:
    with pytest.raises(ConfigError, match=r"stages .*must|stages of curriculum"):
        weights_at(1, bad)


def drawn(ratios: dict[str, float], count: int, *, block: int) -> dict[str, int]:
    settings = CurriculumSettings(name="mix", options={"ratios": ratios})
    sampler = PromptSampler(settings, PromptColumns(count=len(SOURCES), source_N=SOURCES), block=block, seed=0)
    sources = [str(SOURCES[sampler.draw()]) for _ in range(count)]
    return {name: sources.count(name) for name in ("math", "code", "reasoning")}


@pytest.mark.parametrize("block", [1, 64])
def test_a_quarter_of_reasoning_is_250_of_1000_draws(block: int) -> None:
    found = drawn({"reasoning": 0.25}, 1000, block=block)
    assert abs(found["reasoning"] - 250) <= 27  # 2 standard deviations of independent draws
    assert abs(found["math"] - 562.5) <= 32 and abs(found["code"] - 187.5) <= 25  # by their sizes, 3 to 1


@pytest.mark.parametrize("block", [1, 64])
def test_fifty_fifty_is_within_two_standard_deviations(block: int) -> None:
    found = drawn({"math": 0.5, "code": 0.5}, 1000, block=block)
    assert abs(found["math"] - 500) <= 32 and found["reasoning"] == 0


def test_a_batch_has_its_shares_exactly() -> None:
    assert drawn({"reasoning": 0.25, "math": 0.75}, 64, block=64) == {"math": 48, "code": 0, "reasoning": 16}


@pytest.mark.parametrize(
    ("ratios", "message"),
    [
        ({}, "shares"),
        ({"math": 0.7, "code": 0.7}, "sum"),
        ({"math": -0.1}, "shares >= 0"),
        ({"poetry": 0.1}, "'poetry'"),
        ({"math": 0.1, "code": 0.1, "reasoning": 0.1}, "sources"),
    ],
)
def test_impossible_shares_are_refused(ratios: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        mix(Pool(rates=PassRates(len(SOURCES)), source_N=SOURCES), ratios=ratios)
