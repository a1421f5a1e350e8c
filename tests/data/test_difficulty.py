"""The offline filter: prompts that are always or never solved go, and what is unknown stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.data.difficulty import is_learnable, pass_rates_of


def record(task: str, outcome: float, void: bool = False) -> dict[str, Any]:
    return {"task_id": task, "acc": outcome, "is_void": void}


def test_only_the_prompt_that_is_sometimes_solved_is_kept() -> None:
    assert is_learnable(np.array([0.0, 0.25, 1.0])).tolist() == [False, True, False]


def test_the_bounds_are_excluded_and_unknown_prompts_kept() -> None:
    rates = np.array([0.1, 0.2, 0.8, 0.9, np.nan])
    assert is_learnable(rates, low=0.1, high=0.9).tolist() == [False, True, True, False, True]
    with pytest.raises(ConfigError, match=r"0\.5"):
        is_learnable(rates, low=0.5, high=0.5)


def test_rates_come_from_attempts_that_count() -> None:
    records = [
        *(record("a", outcome) for outcome in (1.0, 0.0, 0.9, 0.0)),
        *(record("b", 1.0) for _ in range(2)),
        record("b", 0.0, void=True),
        record("c", 1.0),
    ]
    rates = pass_rates_of(records, ["b", "a", "c", "d"])
    assert rates[:2].tolist() == [1.0, 0.25]
    assert np.isnan(rates[2:]).all()  # one attempt, and none
    assert is_learnable(rates).tolist() == [False, True, True, True]


def test_single_attempts_are_no_basis_for_a_filter() -> None:
    with pytest.raises(ConfigError, match="none of the 2 tasks has 2 attempts that count, got at most 1"):
        pass_rates_of([record("a", 1.0), record("b", 0.0)], ["a", "b"])
