"""Truncated sampling and importance weights."""

from __future__ import annotations

import math
import random

import pytest

from verl_agentic.verl.rollout.rollout_features import truncation_warning


@pytest.mark.parametrize(
    ("top_p", "top_k", "uses", "is_warned"),
    [
        (1.0, -1, True, False),
        (1.0, 0, True, False),
        (0.95, -1, True, True),
        (1.0, 50, True, True),
        (0.95, 50, False, False),
    ],
)
def test_truncated_samples_are_warned_of_where_their_log_probs_weigh(
    top_p: float, top_k: int, uses: bool, is_warned: bool
) -> None:
    warning = truncation_warning(top_p=top_p, top_k=top_k, uses_rollout_log_probs=uses)
    assert (warning is not None) is is_warned
    assert warning is None or f"got top_p={top_p} and top_k={top_k}: " in warning


def test_what_is_warned_of_is_a_bias_of_the_mass_that_was_cut() -> None:
    # From (.6, .3, .1) with top_p .9: drawn from (2/3, 1/3), so the same weights give the ratio .9 and not 1.
    whole, kept = (0.6, 0.3, 0.1), (2 / 3, 1 / 3)
    rng = random.Random(0)
    drawn = rng.choices((0, 1), kept, k=1000)
    ratios = [math.exp(math.log(whole[token]) - math.log(kept[token])) for token in drawn]
    assert ratios == pytest.approx([0.9] * 1000)
