"""PEAR weights."""

from __future__ import annotations

import math

import pytest
import torch

from verl_agentic.base.errors import ConfigError
from verl_agentic.methods.losses.pear import PearSettings, pear_weights

LOG_RATIOS = torch.tensor([0.3, -0.5, 0.2])
TURNS = torch.tensor([0, 0, 1])
OPEN = {"gamma": 1.0, "min_ratio": 1e-9, "max_ratio": 1e9, "max_weight": 1e9}


def weights(**changes: object) -> list[float]:
    return pear_weights(LOG_RATIOS, TURNS, PearSettings(**{**OPEN, **changes})).tolist()  # pyright: ignore


def test_a_token_has_the_product_of_the_ratios_behind_it() -> None:
    assert weights() == pytest.approx([0.740818, 1.221403, 1.0], rel=1e-5)
    assert weights(level="sequence") == pytest.approx([1.0] * 3), "the log-ratios sum to 0"
    assert weights(level="block") == pytest.approx([math.exp(0.2), math.exp(0.2), 1.0]), "of later turns"


def test_a_unit_further_away_is_discounted_more() -> None:
    assert weights(gamma=0.5) == pytest.approx([0.25 * math.exp(-0.3), 0.5 * math.exp(0.2), 1.0])
    assert weights(gamma=0.5, level="block") == pytest.approx([0.5 * math.exp(0.2)] * 2 + [1.0])


def test_ratios_of_units_and_weights_are_limited() -> None:
    assert weights(min_ratio=0.9, max_ratio=1.1) == pytest.approx([0.9 * 1.1, 1.1, 1.0])
    assert weights(level="block", min_ratio=0.5, max_ratio=1.05) == pytest.approx([1.05, 1.05, 1.0])
    assert max(weights(max_weight=0.8)) == pytest.approx(0.8)
    with pytest.raises(ConfigError, match="min_ratio"):
        PearSettings(min_ratio=2.0, max_ratio=1.0)


def test_data_of_the_policy_itself_is_not_weighted_and_weights_have_no_gradient() -> None:
    same = torch.zeros(4, requires_grad=True)
    found = pear_weights(same, torch.zeros(4, dtype=torch.int64), PearSettings(gamma=1.0))
    assert found.tolist() == [1.0] * 4 and not found.requires_grad
