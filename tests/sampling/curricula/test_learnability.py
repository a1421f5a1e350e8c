"""Learnability: the vectors, and what the floor of the sampler is there for."""

from __future__ import annotations

import numpy as np
import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.sampling.curricula.learnability import learnability, tent, variance
from verl_agentic.sampling.curriculum import Pool
from verl_agentic.sampling.prompts.pass_rates import PassRates

RATES = np.array([0, 0.125, 0.25, 0.5, 0.75, 0.875, 1])
VARIANCE = [0, 0.109375, 0.1875, 0.25, 0.1875, 0.109375, 0]
TENT = [0.0, 0.25, 0.5, 1.0, 0.5, 0.25, 0.0]


def test_both_shapes_are_those_of_the_vectors() -> None:
    assert variance(RATES) == pytest.approx(VARIANCE)
    assert tent(RATES) == pytest.approx(TENT)


@pytest.mark.parametrize(("options", "expected"), [({}, VARIANCE), ({"shape": "tent"}, TENT)])
def test_the_weights_are_those_of_the_rates_in_the_table(options: dict[str, str], expected: list[float]) -> None:
    rates = PassRates(7, prior_trials=0.0)
    for prompt, rate in enumerate(RATES):
        rates.record(prompt, [1.0] * int(8 * rate) + [0.0] * int(8 - 8 * rate))
    assert learnability(Pool(rates=rates), **options) == pytest.approx(expected)
    assert learnability.revisits  # what is 0 here is drawn with the floor's share


def test_prompts_not_seen_yet_come_first() -> None:
    rates = PassRates(2)
    rates.record(0, [1.0, 0.0, 0.0, 0.0])
    weights = learnability(Pool(rates=rates))
    assert weights[1] == 0.25 > weights[0]


def test_an_unknown_shape_is_refused() -> None:
    with pytest.raises(ConfigError, match="shape"):
        learnability(Pool(rates=PassRates(1)), shape="flat")
