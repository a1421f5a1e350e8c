"""Estimators that compare outcomes, one number per session, without a standard deviation of the group."""

from __future__ import annotations

import pytest
import torch
from batches import make_batch, per_row

from verl_agentic.base.errors import ConfigError
from verl_agentic.credit.advantage import load_advantage

OUTCOMES = {"2of4": [1, 0, 0, 1], "1of4": [1, 0, 0, 0], "all1": [1, 1, 1, 1], "real": [1.0, 0.5, 0.25, -0.2]}
# Prompt 1: three of four are right; prompt 2: one of four.
TWO_PROMPTS = {"outcomes": [1, 1, 1, 0, 0, 0, 0, 1], "groups": [1, 1, 1, 1, 2, 2, 2, 2]}


def advantages(name: str, batch, **options) -> list[float]:
    return per_row(load_advantage(name)(batch, **options).advantages_BT, batch.mask_BT)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("2of4", [0.666667, -0.666667, -0.666667, 0.666667]),
        ("1of4", [1.0, -0.333333, -0.333333, -0.333333]),
        ("all1", [0.0, 0.0, 0.0, 0.0]),
        ("real", [0.816667, 0.15, -0.183333, -0.783333]),
    ],
)
def test_rloo_compares_with_the_mean_of_the_siblings(case, expected) -> None:
    assert advantages("safe_rloo", make_batch(OUTCOMES[case])) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("2of4", [0.5, -0.5, -0.5, 0.5]),
        ("1of4", [0.75, -0.25, -0.25, -0.25]),
        ("all1", [0.0, 0.0, 0.0, 0.0]),
        ("real", [0.6125, 0.1125, -0.1375, -0.5875]),
    ],
)
def test_dr_grpo_is_the_distance_to_the_groups_mean(case, expected) -> None:
    assert advantages("dr_grpo", make_batch(OUTCOMES[case])) == pytest.approx(expected, abs=1e-6)


def test_batch_and_group_means_are_different_baselines() -> None:
    batch = make_batch(**TWO_PROMPTS)
    assert advantages("batch_baseline", batch) == [0.5, 0.5, 0.5, -0.5, -0.5, -0.5, -0.5, 0.5]
    assert advantages("dr_grpo", batch) == [0.25, 0.25, 0.25, -0.75, -0.25, -0.25, -0.25, 0.75]


def test_lite_ppo_divides_by_the_spread_of_the_batch() -> None:
    batch = make_batch(**TWO_PROMPTS)
    raw = [0.467706, 0.467706, 0.467706, -1.403119, -0.467706, -0.467706, -0.467706, 1.403119]
    centred = [0.540061, 0.540061, 0.540061, -1.620182, -0.540061, -0.540061, -0.540061, 1.620182]
    assert advantages("lite_ppo", batch) == pytest.approx(raw, abs=2e-6)
    assert advantages("lite_ppo", batch, std_of="centred") == pytest.approx(centred, abs=2e-6)
    assert advantages("lite_ppo", make_batch([0.6] * 8), epsilon=0.0) == [0.0] * 8
    with pytest.raises(ConfigError, match="std_of"):
        advantages("lite_ppo", batch, std_of="tokens")


def test_remax_compares_with_the_greedy_session_of_the_prompt() -> None:
    batch = make_batch([0.9, 0.2], groups="ab", baseline_B=torch.tensor([0.4, 0.4]))
    assert advantages("safe_remax", batch) == pytest.approx([0.5, -0.2])


def test_without_a_greedy_session_remax_says_nothing() -> None:
    batch = make_batch([0.9, 0.2], groups="ab", baseline_B=torch.tensor([float("nan"), 0.4]))
    assert advantages("safe_remax", batch) == pytest.approx([0.0, -0.2])
    with pytest.raises(ConfigError, match="baseline_B"):
        advantages("safe_remax", make_batch([0.9]))


def test_pass_at_k_credits_the_best_session_alone() -> None:
    assert advantages("safe_passk", make_batch([0.2, 0.9, 0.5, 0.5])) == pytest.approx([0, 1.392616, 0, 0], abs=1e-6)
    plain = advantages("safe_passk", make_batch([0.2, 0.9, 0.5, 0.5]), normalize=False)
    assert plain == pytest.approx([0, 0.4, 0, 0])


def test_pass_at_k_credits_nobody_when_two_are_best_or_one_is_alone() -> None:
    batch = make_batch([1.0, 1.0, 0.0, 0.7, -0.5, 0.9], groups=["a", "a", "a", "b", "c", "c"], void=[5])
    assert advantages("safe_passk", batch) == [0.0] * 6


def test_pass_at_k_sees_negative_rewards_and_several_rows() -> None:
    batch = make_batch([0.0, -0.5, -0.75], sessions=["s", "s", "t"], order=[0, 1, 0])
    assert advantages("safe_passk", batch, normalize=False) == [0.25, 0.25, 0.0]
    # A void session is not second best with 0.
    batch = make_batch([-0.25, -0.75, 0.0], void=[2])
    assert advantages("safe_passk", batch, normalize=False) == [0.5, 0.0, 0.0]


GDPO_PARTS = {"acc": torch.tensor([1.0, 0.0, 0.0, 0.0]), "format": torch.tensor([0.1, 0.1, 0.0, 0.1])}


def test_gdpo_compares_every_part_by_itself() -> None:
    batch = make_batch([1.1, 0.1, 0.0, 0.1], parts=GDPO_PARTS)
    assert advantages("safe_gdpo", batch) == pytest.approx([1.22475, -6e-6, -1.224739, -6e-6], abs=1e-6)
    # GRPO on the sum hardly sees the format.
    on_sum = [1.493792, -0.433682, -0.626429, -0.433682]
    assert advantages("safe_grpo", batch) == pytest.approx(on_sum, abs=1e-6)


def test_gdpo_weighs_the_parts_that_it_is_told_to_take() -> None:
    batch = make_batch([1.1, 0.1, 0.0, 0.1], parts=GDPO_PARTS)
    # One part, whitened: its z-scores have a standard deviation of 1 already.
    acc = [1.5, -0.5, -0.5, -0.5]
    assert advantages("safe_gdpo", batch, keys=["acc"]) == pytest.approx(acc, abs=1e-5)
    assert advantages("safe_gdpo", batch, keys=["format", "acc"], weights=[0.0, 3.0]) == pytest.approx(acc, abs=1e-5)
    with pytest.raises(ConfigError, match=r"\['style'\]"):
        advantages("safe_gdpo", batch, keys=["acc", "style"])
    with pytest.raises(ConfigError, match="weight"):
        advantages("safe_gdpo", batch, keys=["acc"], weights=[1.0, 2.0])


def test_a_long_session_has_one_vote_in_gdpos_whitening() -> None:
    parts = {"acc": torch.tensor([1.0, 0.0, 1.0, 0.0])}
    mask = torch.ones(4, 8).long()
    mask[1:, 2:] = 0
    batch = make_batch([1, 0, 1, 0], groups="aabb", mask=mask, parts=parts)
    # z = +-0.707, std over four sessions = sqrt(4 * 0.5 / 3).
    assert advantages("safe_gdpo", batch) == pytest.approx([0.866024, -0.866024, 0.866024, -0.866024], abs=1e-5)


def test_gdpo_leaves_void_sessions_and_unknown_parts_out() -> None:
    parts = {"acc": torch.tensor([1.0, 0.0, 1.0, float("nan")])}
    batch = make_batch([1, 0, 1, 0], void=[2], parts=parts)
    assert advantages("safe_gdpo", batch) == pytest.approx([0.707106, -0.707106, 0.0, 0.0], abs=1e-5)
    batch = make_batch([1, 0, 0], groups="aab", parts={"acc": torch.tensor([1.0, 0.0, 0.4])})
    assert advantages("safe_gdpo", batch)[2] == 0.0
