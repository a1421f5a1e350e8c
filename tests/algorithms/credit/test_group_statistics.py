from __future__ import annotations

import pytest
import torch

from verl_agentic.credit.credit.group_statistics import group_counts, group_means, group_stds

VALUES = torch.tensor([1.0, 5.0, 3.0, 100.0, 7.0, 2.0])
GROUPS = torch.tensor([0, 1, 0, 0, 1, 2])
VALID = torch.tensor([True, True, True, False, True, False])


def test_only_valid_members_count() -> None:
    assert group_counts(GROUPS, valid_N=VALID, num_groups=3).tolist() == [2, 2, 2, 2, 2, 0]


def test_means_are_of_valid_members_and_0_where_there_are_none() -> None:
    assert group_means(VALUES, GROUPS, valid_N=VALID, num_groups=3).tolist() == [2, 6, 2, 2, 6, 0]


@pytest.mark.parametrize(("ddof", "expected"), [(1, 2**0.5), (0, 1.0)])
def test_standard_deviations_have_either_convention(ddof, expected) -> None:
    stds_N = group_stds(VALUES, GROUPS, valid_N=VALID, num_groups=3, ddof=ddof)
    assert stds_N.tolist() == pytest.approx([expected] * 5 + [0.0])


def test_too_few_members_have_no_spread() -> None:
    alone = {"valid_N": torch.tensor([True]), "num_groups": 1}
    for ddof in (0, 1):
        assert group_stds(torch.tensor([3.0]), torch.tensor([0]), ddof=ddof, **alone).tolist() == [0.0]


@pytest.mark.parametrize("offset", [0.0, 1e6, -1e6])
def test_whole_outcomes_with_an_offset_are_told_apart(offset: float) -> None:
    values_N, alone = torch.tensor([offset, offset + 1]), {"valid_N": torch.ones(2).bool(), "num_groups": 1}
    assert group_stds(values_N, torch.zeros(2).long(), ddof=0, **alone).tolist() == [0.5, 0.5]


def test_small_differences_of_large_numbers_survive() -> None:
    values_N = torch.tensor([10_000.0, 10_000.25])
    valid_N = torch.ones(2).bool()
    stds_N = group_stds(values_N, torch.zeros(2).long(), valid_N=valid_N, num_groups=1, ddof=1)
    assert stds_N.tolist() == pytest.approx([0.25 / 2**0.5] * 2)
