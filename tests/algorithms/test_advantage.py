"""Estimators are found by name, ours and those of others."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from batches import COLUMNS, OPTIONS, make_batch

from verl_agentic.base.errors import ConfigError
from verl_agentic.credit.advantage import advantage, advantage_names, is_advantage, load_advantage
from verl_agentic.credit.credit.batch import CreditBatch


@advantage()
def doubled(batch: CreditBatch, *, factor: float = 2.0) -> torch.Tensor:
    return batch.to_tokens(factor * batch.outcomes_S)


def test_an_estimator_of_someone_else_is_found_in_its_module() -> None:
    name = f"{__name__}:doubled"
    assert is_advantage(name) and is_advantage("safe_grpo") and not is_advantage("grpo")
    assert load_advantage(name)(make_batch([1, 3]), factor=3.0).advantages_BT[:, 0].tolist() == [3.0, 9.0]


@pytest.mark.parametrize(
    ("name", "says"),
    [("no_such", "no_such"), ("no_such_module:f", "no_such_module"), (f"{__name__}:make_batch", "@advantage")],
)
def test_what_is_no_estimator_is_refused(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_advantage(name)


@pytest.mark.parametrize("name", advantage_names())
def test_rows_without_response_columns_have_no_advantages(name: str) -> None:
    batch = any_rows_without_tokens()
    assert load_advantage(name)(batch, **OPTIONS.get(name, {})).advantages_BT.shape == (2, 0)


def any_rows_without_tokens() -> CreditBatch:
    batch = make_batch([1, 3], **{name: torch.zeros(2, 3) for name in COLUMNS})
    parts = {name: value[:, :0] for name, value in vars(batch).items() if name.endswith("_BT") and value is not None}
    return replace(batch, **parts)


def test_unknown_options_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="'fctor'"):
        doubled(make_batch([1, 3]), fctor=3.0)
