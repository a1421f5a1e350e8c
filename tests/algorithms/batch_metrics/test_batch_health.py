"""Statistics of a batch before it is trained on."""

from __future__ import annotations

import math
import time

import pytest
import torch
from batches import any_rows, make_batch
from hypothesis import given

from verl_agentic.credit.batch_metrics.batch_health import batch_health
from verl_agentic.credit.credit.batch import CreditBatch

NOTHING = {"batch/length_reward_corr", "batch/outcome_share", "batch/log_prob_diff/mean", "batch/approx_kl"}


def masks(*lengths: int, width: int = 8) -> torch.Tensor:
    return (torch.arange(width) < torch.tensor(lengths).unsqueeze(-1)).long()


def test_vector_of_kl() -> None:
    # H7: rho = e^.1 = 1.105171, (rho - 1) - ln rho = .005171.
    mask = masks(2, 3)
    rollout = torch.full((2, 8), -1.0)
    found = batch_health(
        make_batch([0.0, 1.0], mask=mask, old_log_probs_BT=rollout + 0.1, rollout_log_probs_BT=rollout)
    )
    assert found["batch/approx_kl"] == pytest.approx(0.005171, abs=1e-6)
    assert found["batch/log_prob_diff/mean"] == pytest.approx(0.1, abs=1e-6)


def test_equal_log_probs_differ_by_nothing() -> None:
    # H16.
    log_probs = torch.randn(3, 3)
    found = batch_health(make_batch([0, 1, 1], old_log_probs_BT=log_probs, rollout_log_probs_BT=log_probs.clone()))
    assert {name: value for name, value in found.items() if "diff" in name or "kl" in name} == {
        "batch/log_prob_diff/mean": 0.0,
        "batch/log_prob_diff/max": 0.0,
        "batch/approx_kl": 0.0,
    }


def test_differences_by_turn_over_sampled_tokens_of_valid_rows() -> None:
    turns = torch.tensor([[0, 0, 1, 2, 3, 4, 5, 9], [0, 0, 0, 0, 0, 1, 1, 1], [0] * 8])
    mask = torch.tensor([[1, 0, 1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 1, 1, 0], [0] * 8])
    old = torch.tensor([[0.1, 99, 0.2, 0.3, 0.4, 0.5, -0.6, 0.7], [0.3, -0.5, 99, 99, 99, 0.4, 0.0, 99], [99] * 8])
    found = batch_health(
        make_batch(
            [1, 0, 0],
            mask=mask,
            void=[2],
            turn_ids_BT=turns,
            old_log_probs_BT=old,
            rollout_log_probs_BT=torch.zeros(3, 8),
        )
    )
    expected = {
        "turn_0": (0.1 + 0.3 + 0.5) / 3,
        "turn_1": (0.2 + 0.4 + 0) / 3,
        "turn_2": 0.3,
        "turn_3": 0.4,
        "turn_4_plus": (0.5 + 0.6 + 0.7) / 3,
        "mean": (0.9 + 0.6 + 0.3 + 0.4 + 1.8) / 11,
        "max": 0.7,
    }
    for name, value in expected.items():
        assert found[f"batch/log_prob_diff/{name}"] == pytest.approx(value, abs=1e-6), name


def test_a_row_whose_reward_is_not_finite_has_no_vote() -> None:
    differences = torch.tensor([[0.1] * 3, [9.0] * 3])
    zeros = torch.zeros(2, 3)
    found = batch_health(make_batch([1.0, math.nan], old_log_probs_BT=differences, rollout_log_probs_BT=zeros))
    assert [found[f"batch/log_prob_diff/{name}"] for name in ("mean", "max")] == pytest.approx([0.1, 0.1])


def test_a_turn_that_nobody_played_is_left_out() -> None:
    zeros = torch.zeros(2, 3)
    batch = make_batch([0, 1], turn_ids_BT=zeros.long(), old_log_probs_BT=zeros, rollout_log_probs_BT=zeros)
    assert {name for name in batch_health(batch) if "turn" in name} == {"batch/log_prob_diff/turn_0"}


def test_length_and_reward_within_groups() -> None:
    # In each group the longer sibling earns more; over all, long answers (of the hard prompt) earn less.
    batch = make_batch([0.8, 1.0, 0.0, 0.2], groups=["easy", "easy", "hard", "hard"], mask=masks(1, 2, 7, 8))
    assert batch_health(batch)["batch/length_reward_corr"] == pytest.approx(1.0)
    # Without siblings, over all: deviations of the lengths -3.5 -2.5 2.5 3.5 and of the rewards .3 .5 -.5 -.3.
    alone = make_batch([0.8, 1.0, 0.0, 0.2], groups=[1, 2, 3, 4], mask=masks(1, 2, 7, 8))
    assert batch_health(alone)["batch/length_reward_corr"] == pytest.approx(-4.6 / math.sqrt(37 * 0.68), abs=1e-6)


def test_lengths_of_wrong_and_right_answers() -> None:
    parts = {"acc": torch.tensor([0.0, 1.0, 0.0, 0.5, math.nan])}
    found = batch_health(make_batch([0, 1, 0, 0, 1], mask=masks(2, 3, 6, 8, 8), parts=parts))
    assert (found["batch/wrong_length"], found["batch/right_length"]) == (4.0, 3.0)


def test_lengths_count_all_rows_of_a_session_and_no_observations() -> None:
    mask = torch.tensor([[1, 0, 1], [1, 1, 1], [1, 0, 0]])
    batch = make_batch(
        [0, 1, 0], mask=mask, sessions=["a", "a", "b"], order=[0, 1, 0], parts={"acc": torch.tensor([1.0, 1.0, 0.0])}
    )
    found = batch_health(batch)
    assert (found["batch/right_length"], found["batch/wrong_length"]) == (5.0, 1.0)


def test_spread_of_rewards_over_all_and_within_groups() -> None:
    # Groups: {0, 1} with std .5, {1, 1, 1} with 0, and a single one, which has no spread.
    batch = make_batch([0, 1, 1, 1, 1, 5], groups=["a", "a", "b", "b", "b", "c"])
    found = batch_health(batch)
    assert found["batch/within_group_std"] == pytest.approx(0.25)
    assert found["batch/reward_std"] == pytest.approx(math.sqrt(29 / 6 - 1.5**2))


def test_void_sessions_have_no_vote() -> None:
    batch = make_batch([0, 1, 9], groups=["a", "a", "a"], void=[2], mask=masks(2, 4, 8))
    found = batch_health(batch)
    assert found["batch/reward_std"] == found["batch/within_group_std"] == 0.5
    assert found["batch/length_reward_corr"] == pytest.approx(1.0)
    assert found["batch/void_session_frac"] == pytest.approx(1 / 3)


def test_vector_of_groups_without_a_signal() -> None:
    # V-DYNSAMP, by acc: g1 and g5 all 1, g3 all 0; shaping makes g5 differ in value only.
    paid = [[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 0], [0.9, 1.0, 1.0, 0.8]]
    acc = [*paid[:4], [1, 1, 1, 1]]
    groups = [group for group in range(5) for _ in range(4)]
    parts = {"acc": torch.tensor(acc, dtype=torch.float32).flatten()}
    found = batch_health(make_batch([one for group in paid for one in group], groups=groups, parts=parts))
    shares = [found[f"batch/{name}_group_frac"] for name in ("zero_signal", "all_0", "all_1")]
    assert shares == pytest.approx([0.6, 0.2, 0.4])


def test_shares_of_the_parts_add_up_to_the_variance() -> None:
    # V-COMPOSITE: weights 1, .2, .1, -.05 of outcome, format, tool_eff and excess steps.
    parts = torch.tensor([[1, 0.2, 0.1, 0], [1, 0.1, -0.1, -0.2], [0, 0.2, 0.1, 0], [1, 0, 0, -1.5]])
    rewards = parts.sum(dim=1)
    assert rewards.tolist() == pytest.approx([1.3, 0.8, 0.3, -0.5])
    names = ["outcome", "format", "tool_eff", "length"]
    columns = {f"weighted/{name}": parts[:, place] for place, name in enumerate(names)} | {"acc": parts[:, 0]}
    found = batch_health(make_batch(rewards.tolist(), parts=columns))
    shares = {name.removeprefix("batch/"): value for name, value in found.items() if "_share" in name}
    assert set(shares) == {"outcome_share", "shaping_share/format", "shaping_share/tool_eff", "shaping_share/length"}
    assert sum(shares.values()) == pytest.approx(1.0)
    # By hand: deviations of the reward .825 .325 -.175 -.975, of the length .425 .225 .425 -1.075; variance .4419.
    assert shares["shaping_share/length"] == pytest.approx((0.350625 + 0.073125 - 0.074375 + 1.048125) / 4 / 0.441875)


def test_outcomes_are_those_that_are_named() -> None:
    # Tests passed go with acc; without names they are an outcome, named is another one alone.
    acc, tests = torch.tensor([0.0, 0, 1, 1]), torch.tensor([0.1, 0.2, 1, 1])
    parts = {"acc": acc, "weighted/tests": tests, "weighted/words": torch.tensor([0.5, 0, 0, 0.5])}
    batch = make_batch((tests + parts["weighted/words"]).tolist(), parts=parts)
    assert "batch/shaping_share/tests" not in batch_health(batch)
    assert "batch/shaping_share/tests" in batch_health(batch, outcomes=["words"])
    assert "batch/shaping_share/words" not in batch_health(batch, outcomes=["words"])


def test_a_part_that_pays_where_nothing_is_solved_has_all_of_the_variance() -> None:
    words = torch.tensor([0.1, 0.0, 0.2])
    parts = {"acc": torch.zeros(3), "weighted/math": torch.zeros(3), "weighted/words": words}
    found = batch_health(make_batch(words.tolist(), parts=parts))
    assert found["batch/outcome_share"] == 0.0 and found["batch/shaping_share/words"] == pytest.approx(1.0)


def test_rewards_on_tokens_that_were_not_sampled_are_summed_up() -> None:
    mask, rewards = masks(2, 3), torch.zeros(2, 8)
    rewards[0, 1] = rewards[1, 2] = 1.0
    batch = CreditBatch.of(rewards=rewards, mask=mask, groups=[0, 0])
    assert batch_health(batch, raw_rewards_BT=rewards)["batch/reward_off_mask"] == 0.0
    lost = rewards.clone()
    lost[0, 4], lost[1, 7] = 0.5, -0.25
    assert batch_health(batch, raw_rewards_BT=lost)["batch/reward_off_mask"] == 0.75


def test_small_differences_of_many_tokens_keep_their_digits() -> None:
    # One running float32 sum would be off by percents.
    shape = (64, 16384)
    zeros = torch.zeros(shape)
    batch = make_batch([1.0] * 64, mask=torch.ones(shape), old_log_probs_BT=zeros + 0.0137, rollout_log_probs_BT=zeros)
    assert batch_health(batch)["batch/log_prob_diff/mean"] == pytest.approx(0.0137, rel=2e-3)


def test_what_is_not_defined_is_left_out() -> None:
    for batch in (make_batch([1.0, 1.0]), make_batch([0.0, 1.0], void=[0, 1])):
        found = batch_health(batch)
        assert not NOTHING & set(found)
        assert all(math.isfinite(value) for value in found.values())


@given(any_rows(needs=["old_log_probs_BT", "rollout_log_probs_BT", "turn_ids_BT", "parts", "text_B", "steps"]))
def test_whatever_the_batch_numbers_are_finite_and_masked_garbage_and_order_do_not_matter(rows) -> None:
    found = batch_health(rows.batch())
    assert all(math.isfinite(value) for value in found.values())
    for other in (rows.with_garbage(), rows.permuted(range(len(rows.groups) - 1, -1, -1))):
        again = batch_health(other.batch())
        assert set(again) == set(found)
        for name, value in found.items():
            assert again[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name


def test_a_large_batch_takes_a_fraction_of_a_second() -> None:
    num_rows, width = 512, 1024
    zeros = torch.zeros(num_rows, width)
    turns = (torch.arange(width) // 128).expand(num_rows, width).contiguous()
    parts = {"acc": (torch.arange(num_rows) % 2).float(), "weighted/a": torch.rand(num_rows)}
    batch = make_batch(
        [float(row % 3) for row in range(num_rows)],
        groups=[row // 8 for row in range(num_rows)],
        mask=torch.ones(num_rows, width, dtype=torch.int64),
        turn_ids_BT=turns,
        old_log_probs_BT=zeros,
        rollout_log_probs_BT=zeros + 0.01,
        parts=parts,
    )
    started = time.process_time()
    batch_health(batch)
    # Measured: 10 ms.
    assert time.process_time() - started < 0.5
