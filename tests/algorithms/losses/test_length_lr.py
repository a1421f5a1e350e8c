"""Learning rate by response length."""

from __future__ import annotations

import pytest

from verl_agentic.base.errors import ConfigError
from verl_agentic.methods.losses.length_lr import length_lr_factor


@pytest.mark.parametrize(("mean_length", "rate"), [(2048, 1e-6), (4096, 1e-6), (16384, 2.5e-7), (0, 1e-6)])
def test_the_rate_is_the_vector(mean_length: float, rate: float) -> None:
    assert 1e-6 * length_lr_factor(mean_length, reference_length=4096) == pytest.approx(rate)


def test_a_reference_that_is_not_positive_is_refused() -> None:
    with pytest.raises(ConfigError, match="got 0"):
        length_lr_factor(100, reference_length=0)
