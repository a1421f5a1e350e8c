"""WebRL: the weight of failures."""

from __future__ import annotations

import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.sampling.curricula.failed_tasks import failed_tasks
from verl_agentic.sampling.curriculum import Pool
from verl_agentic.sampling.prompts.pass_rates import PassRates


def test_three_failures_make_the_weight_one_plus_three_delta_and_a_success_takes_it_back() -> None:
    rates = PassRates(3)
    for _ in range(3):
        rates.record(0, [0.0] * 4)
        rates.record(1, [0.0, 0.0, 1.0])
    assert failed_tasks(Pool(rates=rates), delta=0.5).tolist() == [1 + 3 * 0.5, 1.0, 1.0]
    rates.record(0, [0.0, 1.0])
    assert failed_tasks(Pool(rates=rates), delta=0.5)[0] == 1.0


def test_hopeless_tasks_do_not_take_over() -> None:
    rates = PassRates(1)
    for _ in range(50):
        rates.record(0, [0.0])
    assert failed_tasks(Pool(rates=rates)).tolist() == [9.0]
    assert failed_tasks(Pool(rates=rates), max_failures=2).tolist() == [3.0]
    with pytest.raises(ConfigError, match="delta >= 0"):
        failed_tasks(Pool(rates=rates), delta=-1.0)
