"""A component's bounds and its check get the options that they ask for, and may ask for no others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from samples import sample

from verl_agentic.base.errors import ConfigError
from verl_agentic.rewards.component import ABSTAIN, component
from verl_agentic.rewards.sample import Sample


def _refuse_negative(least: float) -> None:
    if least < 0:
        raise ConfigError(f"least must be 0 or more, got {least}")


def _penalty(sample: Sample, *, most: float, least: float = 0.25, unit: str = "turns") -> float:
    raise NotImplementedError


PENALTY = component(
    low=lambda most: -most, high=lambda least, most: -least * most, check=_refuse_negative, kind="shaping"
)(_penalty)


@pytest.mark.parametrize(
    ("options", "low", "high"),
    [({"most": 2.0}, -2.0, -0.5), ({"most": 2.0, "least": 0.5, "unit": "calls"}, -2.0, -1.0)],
)
def test_bounds_get_the_options_that_they_ask_for_and_the_components_defaults(
    options: dict[str, Any], low: float, high: float
) -> None:
    made = PENALTY.make(options)
    assert (made.low, made.high, made.options) == (low, high, options)


def test_what_the_check_refuses_is_refused_before_the_bounds_are_asked() -> None:
    asked: list[float] = []

    def high(least: float) -> float:
        asked.append(least)
        return 1.0

    refusing = component(high=high, check=_refuse_negative)(_penalty)
    with pytest.raises(ConfigError, match="least"):
        refusing.make({"most": 1.0, "least": -1.0})
    assert not asked and refusing.make({"most": 1.0}).high == 1.0 and asked == [0.25]


def test_what_the_component_does_not_name_is_what_the_check_gets_unnamed() -> None:
    got: dict[str, Any] = {}

    def check(form: str, **options: Any) -> None:
        got.update(options, form=form)

    @component(check=check)
    def open_ended(sample: Sample, *, form: str = "a", threshold: float = 0.5, **options: Any) -> float:
        raise NotImplementedError

    open_ended.make({"threshold": 0.1, "endpoint": "http://h", "model": "m"})
    assert got == {"form": "a", "endpoint": "http://h", "model": "m"}


@pytest.mark.parametrize("place", ["low", "high", "check"])
@pytest.mark.parametrize("asking", [lambda mots: 0.0, lambda sample: 0.0, lambda **options: 0.0])
def test_who_asks_for_an_option_that_the_component_lacks_is_refused_at_once(place: str, asking: Any) -> None:
    with pytest.raises(ConfigError, match="'_penalty'"):
        component(**{place: asking})(_penalty)


def test_what_a_bound_raises_is_a_fault_of_the_configuration() -> None:
    with pytest.raises(ConfigError, match="'_penalty'"):
        component(low=lambda least: 1 / least)(_penalty).make({"most": 1.0, "least": 0.0})
    with pytest.raises(ConfigError, match=r"2\.0"):
        component(low=lambda most: most)(_penalty).make({"most": 2.0})


def test_components_that_need_ground_truth_abstain_without_it_and_run_with_it() -> None:
    def plain(subject: Sample) -> float:
        return float(subject.ground_truth)

    async def later(subject: Sample) -> float:
        return float(subject.ground_truth)

    needs = component(needs_ground_truth=True)
    without, present = sample(), sample(ground_truth=1)
    assert needs(plain).make({})(without) is ABSTAIN
    assert needs(plain).make({})(present) == 1.0
    assert asyncio.run(needs(later).make({})(without)) is ABSTAIN
    assert asyncio.run(needs(later).make({})(present)) == 1.0
