"""Merges of task vectors."""

from __future__ import annotations

import pytest
import torch

from verl_agentic.data.model_merge_math import active_counts, merge_mean, merge_ram

BASE = torch.tensor([1.0, 2.0, 3.0])
UPDATES = torch.tensor([[0.2, 0.0, 0.4], [0.4, 0.6, 0.0]])


def test_shared_updates_are_averaged_and_unique_ones_are_kept() -> None:
    merged = merge_ram(BASE, list(BASE + UPDATES), threshold=1e-5, scales=[1.0, 1.0])
    torch.testing.assert_close(merged - BASE, torch.tensor([0.3, 0.6, 0.4]))
    torch.testing.assert_close(merge_mean(BASE, list(BASE + UPDATES)) - BASE, torch.tensor([0.3, 0.3, 0.2]))


def test_a_scale_changes_the_unique_updates_of_its_model_alone() -> None:
    merged = merge_ram(BASE, list(BASE + UPDATES), threshold=1e-5, scales=[2.0, 1.0])
    torch.testing.assert_close(merged - BASE, torch.tensor([0.3, 0.6, 0.8]))


def test_the_scale_grows_with_the_share_of_averaged_updates_up_to_its_limit() -> None:
    counts = active_counts(BASE, list(BASE + UPDATES), threshold=1e-5)
    assert (counts.shared_M.tolist(), counts.unique_M.tolist()) == ([1, 1], [1, 1])
    assert counts.scales(1.2) == pytest.approx([1.2, 1.2])
    lonely = active_counts(torch.zeros(5), [torch.tensor([1.0, 1, 1, 0, 0]), torch.tensor([1.0, 0, 0, 1, 0])],
                           threshold=0.0)  # fmt: skip
    assert lonely.scales(1.2) == pytest.approx([1.1, 1.2]), "one averaged update for two, and for one, unique ones"


def test_updates_up_to_the_threshold_are_dropped() -> None:
    merged = merge_ram(BASE, list(BASE + UPDATES), threshold=0.5, scales=[1.0, 1.0])
    torch.testing.assert_close(merged - BASE, torch.tensor([0.0, 0.6, 0.0]))


def test_a_merged_tensor_has_the_type_of_the_base() -> None:
    assert merge_ram(BASE.bfloat16(), list(BASE + UPDATES), threshold=0.0, scales=[1.0, 1.0]).dtype is torch.bfloat16
