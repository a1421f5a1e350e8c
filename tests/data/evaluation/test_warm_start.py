"""The stop criterion of SFT warm starts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from verl_agentic.base.errors import DataError
from verl_agentic.evaluate.warm_start import WarmStartCheck, WarmStartRule, choose_check, make_check, reason_to_stop

RULE = WarmStartRule(samples=8, patience=2, min_entropy=0.1)


def checks(*figures: tuple[float, float]) -> list[WarmStartCheck]:
    """Returns checks of steps 10, 20, ... with these pass@k and entropies. pass@1 only rises, as in overfitting."""
    return [
        WarmStartCheck(step=10 * n, pass_at_1=n / 10, pass_at_k=pass_at_k, entropy=entropy)
        for n, (pass_at_k, entropy) in enumerate(figures, 1)
    ]


def steps_until_stop(every: Sequence[WarmStartCheck]) -> int:
    """Returns the step after which training ends, 0 if it does not."""
    return next((every[n - 1].step for n in range(1, len(every) + 1) if reason_to_stop(every[:n], RULE)), 0)


@pytest.mark.parametrize(
    ("figures", "end", "chosen"),
    [
        (((0.2, 0.9), (0.5, 0.7), (0.6, 0.5)), 0, 30),
        (((0.2, 0.9), (0.6, 0.7), (0.5, 0.5), (0.4, 0.4), (0.7, 0.3)), 40, 20),
        (((0.2, 0.9), (0.6, 0.7), (0.5, 0.5), (0.7, 0.4)), 0, 40),
        (((0.6, 0.9), (0.6, 0.7)), 0, 10),
        (((0.2, 0.9), (0.9, 0.09)), 20, 10),
        (((0.2, 0.05),), 10, 10),
    ],
    ids=["rises", "falls for two checks", "falls for one check", "earlier of two", "entropy is gone", "never varied"],
)
def test_training_ends_when_pass_at_k_stops_to_rise_or_entropy_is_gone(
    figures: tuple[tuple[float, float], ...], end: int, chosen: int
) -> None:
    every = checks(*figures)
    assert steps_until_stop(every) == end
    seen = [check for check in every if not end or check.step <= end]
    assert choose_check(seen, RULE).step == chosen


def test_without_enough_entropy_anywhere_the_most_varied_checkpoint_is_taken() -> None:
    assert choose_check(checks((0.2, 0.01), (0.3, 0.05), (0.9, 0.02)), RULE).step == 20


def test_a_check_has_the_means_of_a_probe() -> None:
    figures = {"pass@1": {"mean": 0.25}, "pass@k": 0.5, "entropy": {"mean": 0.75}}
    assert make_check(7, figures) == WarmStartCheck(step=7, pass_at_1=0.25, pass_at_k=0.5, entropy=0.75)
    with pytest.raises(DataError, match="step 7"):
        make_check(7, {**figures, "pass@k": None})
