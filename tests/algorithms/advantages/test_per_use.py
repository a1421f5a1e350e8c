"""Groups that are used several times."""

from __future__ import annotations

import pytest
import torch
from batches import make_batch, per_row

from verl_agentic.base.errors import ConfigError
from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.methods.advantages.per_use import per_use

OUTCOMES = [1.0, 0.0, 0.0, 0.0, 0.0]


def used(times: int) -> CreditBatch:
    """Returns a group as many times as it is used, beside another one."""
    copies = [f"copy {i}" for i in range(times)]
    return make_batch(
        OUTCOMES * times + [1.0, 0.0],
        groups=[name for name in copies for _ in OUTCOMES] + ["other", "other"],
        uses_B=torch.tensor([times] * len(OUTCOMES) * times + [1, 1]),
    )


def values(batch: CreditBatch, **options: object) -> list[float]:
    return per_row(per_use(batch, **options).advantages_BT, batch.mask_BT)


def test_a_group_that_is_used_once_is_grpo() -> None:
    # mean .2, standard deviation sqrt(.2); 1 and 0 have sqrt(.5).
    expected = [0.8 / 0.2**0.5, *[-0.2 / 0.2**0.5] * 4, 0.5**0.5, -(0.5**0.5)]
    assert values(used(1)) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("clip", [None, 1.0])
def test_each_of_two_copies_has_half_the_weight_and_their_sum_is_unchanged(clip: float | None) -> None:
    once, twice = values(used(1), clip=clip), values(used(2), clip=clip)
    assert twice[:5] == pytest.approx([value / 2 for value in once[:5]])
    assert [a + b for a, b in zip(twice[:5], twice[5:10], strict=True)] == pytest.approx(once[:5])
    assert twice[10:] == once[5:]


def test_the_advantage_is_clipped_before_it_is_divided() -> None:
    assert values(used(2), clip=1.0)[:2] == pytest.approx([0.5, -0.2 / 0.2**0.5 / 2], abs=1e-5)
    assert values(used(1), clip=0.1)[:2] == pytest.approx([0.1, -0.1])


def test_other_bases_are_divided_too() -> None:
    assert values(used(4), base="dr_grpo")[:2] == pytest.approx([0.2, -0.05])
    assert values(used(4), base="rloo")[:2] == pytest.approx([0.25, -0.0625])


def test_a_clip_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="clip"):
        per_use(used(1), clip=0.0)
