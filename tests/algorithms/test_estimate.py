from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from batches import make_batch, on_last_token, per_row

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.base.settings import read_settings
from verl_agentic.credit.advantage import AdvantageType, advantage, load_advantage
from verl_agentic.credit.credit.batch import Advantages, CreditBatch
from verl_agentic.credit.estimate import CreditSettings, estimate, scaled_by_source

Tensor = torch.Tensor
PLAIN = CreditSettings()
NAN = math.nan


def giving(advantages_BT: Tensor, returns_BT: Tensor | None = None, **metrics: float) -> AdvantageType:
    @advantage()
    def invented(batch: CreditBatch) -> Tensor | Advantages:
        if returns_BT is None:
            return advantages_BT
        return Advantages(advantages_BT=advantages_BT, returns_BT=returns_BT, metrics=metrics)

    return invented


# Settings


def test_settings_are_what_the_section_says() -> None:
    assert read_settings(CreditSettings, {}, section="credit") == CreditSettings(clip=None, by_source=False, options={})
    given = {"clip": 5, "by_source": True, "options": {"ddof": 0}}
    assert read_settings(CreditSettings, given, section="credit") == CreditSettings(
        clip=5, by_source=True, options={"ddof": 0}
    )


@pytest.mark.parametrize(
    ("section", "named"),
    [
        ({"clips": 5}, r"\['clips'\]"),
        ({"clip": 0}, "clip"),
        ({"clip": NAN}, "clip"),
        ({"clip": True}, "clip"),
        ({"clip": "5"}, "clip"),
        ({"by_source": "yes"}, "by_source"),
        ({"options": ["ddof"]}, "options"),
    ],
)
def test_settings_that_cannot_work_are_refused(section, named) -> None:
    with pytest.raises(ConfigError, match=named):
        read_settings(CreditSettings, section, section="credit")


def test_options_reach_the_estimator() -> None:
    given = estimate(load_advantage("safe_grpo"), make_batch([1, 0]), CreditSettings(options={"ddof": 0}))
    assert given.advantages_BT[:, 0].tolist() == pytest.approx([1.0, -1.0], abs=1e-5)
    with pytest.raises(ConfigError, match="safe_grpo"):
        estimate(load_advantage("safe_grpo"), make_batch([1, 0]), CreditSettings(options={"dof": 0}))


# Checks


def test_what_an_estimator_gives_on_masked_tokens_and_void_rows_is_0() -> None:
    mask = torch.tensor([[1, 1, 0], [0, 0, 0], [1, 1, 1]])
    batch = make_batch([1, 1, NAN], mask=mask)
    kept = torch.tensor([[1.0, 1, 0], [0, 0, 0], [0, 0, 0]])
    garbage = torch.where(kept == 1, kept, NAN)
    given = estimate(giving(garbage, garbage.clone()), batch, PLAIN)
    assert torch.equal(given.advantages_BT, kept) and torch.equal(given.returns_BT, kept)


@pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
def test_an_estimator_that_gives_what_is_not_finite_is_named(bad) -> None:
    good = torch.ones(2, 3)
    broken = good.clone()
    broken[1, 2] = bad
    with pytest.raises(DataError, match="'invented'"):
        estimate(giving(broken), make_batch([1, 0]), PLAIN)
    with pytest.raises(DataError, match="'invented'"):
        estimate(giving(good, broken), make_batch([1, 0]), PLAIN)


def test_large_advantages_are_not_taken_for_infinite_ones() -> None:
    large = torch.full((2, 3), 3e38)
    assert torch.equal(estimate(giving(large, large), make_batch([1, 0]), PLAIN).advantages_BT, large)


def test_an_estimator_that_gives_another_shape_is_named() -> None:
    with pytest.raises(DataError, match="'invented'"):
        estimate(giving(torch.ones(2)), make_batch([1, 0]), PLAIN)


# Clipping

CLIP_2 = CreditSettings(clip=2.0)


def test_rare_outcomes_of_large_groups_are_clipped() -> None:
    batch = make_batch([1] + [0] * 63)
    estimator = load_advantage("safe_grpo")
    assert float(estimate(estimator, batch, PLAIN).advantages_BT.max()) == pytest.approx(7.874937, abs=1e-6)
    given = estimate(estimator, batch, CreditSettings(clip=5.0))
    assert float(given.advantages_BT.max()) == 5.0
    assert given.advantages_BT.min() == estimate(estimator, batch, PLAIN).advantages_BT.min()
    assert given.returns_BT is given.advantages_BT
    assert given.metrics["credit/clipped_token_frac"] == 1 / 64


def test_both_signs_are_clipped_and_a_critics_targets_are_not() -> None:
    given = estimate(giving(torch.tensor([[-3.0, 1.0]]), torch.tensor([[9.0, 9.0]])), make_batch([1], tokens=2), CLIP_2)
    assert given.advantages_BT.tolist() == [[-2.0, 1.0]]
    assert given.returns_BT.tolist() == [[9.0, 9.0]]
    assert given.metrics["credit/clipped_token_frac"] == 0.5
    assert given.metrics["credit/abs_advantage_mean"] == 1.5


# Sources

MATH_AND_CODE = {
    "outcomes": [1, 0, 0, 1, 0.7, 0.9, 0.8, 0.8],
    "groups": ["m", "m", "m", "m", "c", "c", "c", "c"],
    "source_B": torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]),
}
Z_SCORES = [0.866024, -0.866024, -0.866024, 0.866024, -1.22473, 1.22473, 0.0, 0.0]


def test_outcomes_are_z_scored_by_source() -> None:
    batch = scaled_by_source(make_batch(**MATH_AND_CODE))
    assert batch.outcomes_S.tolist() == pytest.approx(Z_SCORES, abs=1e-5)


def test_by_source_comes_before_the_estimator() -> None:
    batch = make_batch(**MATH_AND_CODE)
    plain = estimate(load_advantage("dr_grpo"), batch, PLAIN).advantages_BT
    scaled = estimate(load_advantage("dr_grpo"), batch, CreditSettings(by_source=True)).advantages_BT
    assert plain[:, 0].tolist() == pytest.approx([0.5, -0.5, -0.5, 0.5, -0.1, 0.1, 0.0, 0.0], abs=1e-6)
    assert scaled[:, 0].tolist() == pytest.approx(Z_SCORES, abs=1e-5)


def test_void_sessions_have_no_vote_on_the_scale_of_a_source() -> None:
    batch = make_batch([1, 0, 0, 1, 0], groups="mmmmm", void=[4], source_B=torch.zeros(5).long())
    assert scaled_by_source(batch).outcomes_S.tolist() == pytest.approx([*Z_SCORES[:4], 0.0], abs=1e-6)


def test_turn_rewards_are_scaled_and_the_mean_is_taken_off_at_the_end() -> None:
    # Session s: rows 0 and 1, of which the last is void; 0.5 for a turn and 1.5 at the end. Session t earned 0.
    mask = torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 0]])
    rewards = torch.tensor([[0.5, 0, 1.5], [0, 0, 0], [0, 0, 0]])
    batch = CreditBatch.of(
        rewards=rewards,
        mask=mask,
        groups="aaa",
        sessions="sst",
        order=[0, 1, 0],
        source_B=torch.zeros(3).long(),
        baseline_B=torch.tensor([1.0, 1.0, 3.0]),
    )
    scaled = scaled_by_source(batch)
    # mean 1, std sqrt(2)
    std = 2**0.5
    expected = torch.tensor([[0.5 / std, 0, 1.5 / std - 1 / std], [0, 0, 0], [0, -1 / std, 0]])
    torch.testing.assert_close(scaled.rewards_BT, expected, rtol=1e-5, atol=1e-6)
    assert scaled.outcomes_S.tolist() == pytest.approx([1 / std, -1 / std], abs=1e-5)
    assert scaled.baseline_B is not None
    assert scaled.baseline_B.tolist() == pytest.approx([0, 0, 2 / std], abs=1e-5)
    assert torch.equal(batch.rewards_BT, rewards)


def test_the_mean_is_taken_off_the_last_row_wherever_it_stands() -> None:
    batch = make_batch([1, 0, 0], tokens=1, sessions=["s", "s", "t"], order=[1, 0, 0], source_B=torch.zeros(3).long())
    # mean 0.5, std sqrt(0.5)
    expected = [0.5 / 0.5**0.5, 0.0, -0.5 / 0.5**0.5]
    assert scaled_by_source(batch).rewards_BT[:, 0].tolist() == pytest.approx(expected, abs=1e-5)


def test_a_source_without_a_spread_is_not_blown_up() -> None:
    rewards = torch.tensor([[0.25, 0.75], [0.0, 1.0]])
    batch = CreditBatch.of(rewards=rewards, mask=torch.ones(2, 2), groups="ab", source_B=torch.zeros(2).long())
    assert scaled_by_source(batch).rewards_BT.tolist() == [[0.25, -0.25], [0.0, 0.0]]


def test_by_source_needs_sources() -> None:
    with pytest.raises(ConfigError, match="agentic_sync"):
        estimate(load_advantage("dr_grpo"), make_batch([1, 0]), CreditSettings(by_source=True))


# Metrics

FIVE_GROUPS = [[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 0], [0.9, 1.0, 1.0, 0.8]]
FIVE = {
    "outcomes": [outcome for group in FIVE_GROUPS for outcome in group],
    "groups": [key for key in "abcde" for _ in range(4)],
}


def metrics(batch: CreditBatch) -> dict[str, float]:
    given = estimate(load_advantage("dr_grpo"), batch, PLAIN).metrics
    assert all(name.startswith("credit/") for name in given)
    return {name.removeprefix("credit/"): value for name, value in given.items()}


def test_groups_without_a_signal_are_told_by_the_raw_outcome() -> None:
    acc_B = torch.tensor(FIVE["outcomes"]).ceil()
    given = metrics(make_batch(**FIVE, parts={"acc": acc_B}))
    assert given["groups"] == 5 and given["sessions"] == 20
    assert given["zero_signal_group_frac"] == pytest.approx(3 / 5)
    assert given["all_0_group_frac"] == pytest.approx(1 / 5)
    assert given["all_1_group_frac"] == pytest.approx(2 / 5)
    assert given["other_constant_group_frac"] == 0
    assert given["outcome_mean"] == pytest.approx(sum(FIVE["outcomes"]) / 20)


def test_without_a_raw_outcome_shaping_hides_that_all_were_right() -> None:
    given = metrics(make_batch(**FIVE))
    assert given["zero_signal_group_frac"] == pytest.approx(2 / 5)
    assert given["all_1_group_frac"] == pytest.approx(1 / 5)


def test_void_sessions_leave_groups_of_one_or_none() -> None:
    batch = make_batch([1, 1, 0.5, 0.5, 0, 0], groups="aabbcc", void=[1, 4, 5])
    given = metrics(batch)
    assert given["singleton_group_frac"] == pytest.approx(1 / 3)
    assert given["void_group_frac"] == pytest.approx(1 / 3)
    assert given["other_constant_group_frac"] == given["zero_signal_group_frac"] == pytest.approx(1 / 3)
    assert given["void_session_frac"] == pytest.approx(3 / 6)


def test_a_void_session_does_not_make_a_constant_group_differ() -> None:
    given = metrics(make_batch([1, 1, 1, -1, -1, -1], groups="aaabbb", void=[2, 5]))
    assert given["all_1_group_frac"] == given["other_constant_group_frac"] == 0.5


def test_sessions_with_rewards_that_are_not_finite_are_counted() -> None:
    given = metrics(make_batch([1, NAN, 0]))
    assert given["nonfinite_sessions"] == 1 and given["void_session_frac"] == pytest.approx(1 / 3)
    # Two of three sessions, +-0.5 each.
    assert given["abs_advantage_mean"] == pytest.approx(0.5)


def test_metrics_of_the_estimator_come_along() -> None:
    ones = torch.ones(1, 3)
    given = estimate(giving(ones, ones.clone(), tree_nodes=3.0), make_batch([1]), PLAIN).metrics
    assert given["credit/tree_nodes"] == 3.0


def test_a_discount_per_step_shows_in_what_the_critic_says_first() -> None:
    # V(s_t) = gamma^(T - t) P(success), t = 0, 25 and 49 of T = 50.
    steps_left = 50 - torch.arange(50)
    values_BT = (0.3 * 0.99**steps_left).repeat(10, 1)
    assert values_BT[0, [0, 25, 49]].tolist() == pytest.approx([0.181502, 0.233346, 0.297], abs=1e-6)
    # An observation at both ends of the row, and a void row.
    mask = torch.ones(10, 53).long()
    mask[:, [0, -2, -1]] = 0
    mask[9] = 0
    padded_BT = torch.full((10, 53), NAN)
    padded_BT[:, 1:-2] = values_BT
    given = metrics(make_batch([1] * 3 + [0] * 7, mask=mask, values_BT=padded_BT))
    assert given["value_first_mean"] == pytest.approx(0.181502, abs=1e-6)
    assert given["value_last_mean"] == pytest.approx(0.297, abs=1e-6)
    assert given["outcome_mean"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("void", [[], [0, 1]])
def test_batches_that_say_nothing_are_no_error(void) -> None:
    batch = make_batch([1, 0], void=void, values_BT=torch.zeros(2, 3), source_B=torch.zeros(2).long())
    if not void:
        batch = replace(batch, rewards_BT=torch.zeros(2, 3))
    given = estimate(load_advantage("safe_grpo"), batch, CreditSettings(by_source=True, clip=1.0))
    assert not given.advantages_BT.count_nonzero()


def test_several_rows_and_outcomes_survive_the_whole_way() -> None:
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 0, 1]])
    batch = CreditBatch.of(
        rewards=on_last_token([0, 1, 0], mask), mask=mask, groups="aaa", sessions="sst", order=[0, 1, 0]
    )
    given = estimate(load_advantage("safe_rloo"), batch, PLAIN)
    assert per_row(given.advantages_BT, batch.mask_BT) == [1.0, 1.0, -1.0]


def test_a_critic_learns_nothing_from_a_session_whose_reward_is_not_finite() -> None:
    values = torch.tensor([[0.5, 0.25, 9], [0.5, 0.25, 9]])
    batch = make_batch([1, NAN], mask=torch.tensor([[1, 1, 0], [1, 1, 0]]), values_BT=values)
    given = estimate(giving(torch.zeros(2, 3), torch.ones(2, 3)), batch, PLAIN)
    assert given.returns_BT.tolist() == [[1, 1, 0], [0.5, 0.25, 0]]
