"""Group sizes out of a budget: the sum is kept, the bounds hold, and more goes where attempts differ more."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.base.errors import ConfigError
from verl_agentic.sampling.prompts.group_sizes import group_sizes


def sizes(scores: list[float], **more: int) -> list[int]:
    return group_sizes(np.array(scores), **more).tolist()


def test_alike_prompts_get_groups_of_sixteen_out_of_512() -> None:
    assert sizes([0.5] * 32, budget=16 * 32, least=2, most=32) == [16] * 32


def test_the_rest_is_shared_in_proportion_and_fractions_go_to_the_greatest_remainders() -> None:
    # 2 each; 9 more by 3:1:0 are 6.75, 2.25 and 0: one is left over, and 0.75 is the greatest remainder.
    assert sizes([0.3, 0.1, 0.0], budget=15, least=2, most=20) == [9, 4, 2]


def test_what_a_full_prompt_cannot_take_goes_to_the_others_and_to_worthless_ones_last() -> None:
    # 18 by 8:1:1:0, at most 6 each: 6, then 12 by 1:1 fill both, and nothing is left.
    assert sizes([0.8, 0.1, 0.1, 0.0], budget=26, least=2, most=8) == [8, 8, 8, 2]
    assert sizes([0.8, 0.1, 0.1, 0.0], budget=29, least=2, most=8) == [8, 8, 8, 5]


def test_without_any_score_all_get_the_same_up_to_one() -> None:
    assert sorted(sizes([0.0] * 3, budget=10, least=2, most=8)) == [3, 3, 4]


@given(
    scores=st.lists(st.floats(0, 1) | st.sampled_from([0.0, 1e-300, 1e300]), min_size=1, max_size=30),
    least=st.integers(0, 4),
    width=st.integers(0, 12),
    share=st.floats(0, 1),
)
def test_the_sum_is_the_budget_and_no_size_leaves_its_bounds(
    scores: list[float], least: int, width: int, share: float
) -> None:
    count, most = len(scores), least + width
    budget = count * least + round(share * count * width)
    found = group_sizes(np.array(scores), budget=budget, least=least, most=most)
    assert found.sum() == budget
    assert found.min() >= least and found.max() <= most
    order = np.argsort(scores)
    assert (np.diff(found[order]) >= -1).all()  # a greater score never gets less, but for the rounding


@pytest.mark.parametrize("budget", [5, 25])
def test_a_budget_out_of_bounds_is_refused(budget: int) -> None:
    with pytest.raises(ConfigError, match=rf"{budget} attempts do not fit 3 prompts with 2 to 8 each"):
        sizes([1.0] * 3, budget=budget, least=2, most=8)
