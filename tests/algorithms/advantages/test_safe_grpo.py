from __future__ import annotations

import pytest
import torch
from batches import make_batch, per_row

from verl_agentic.base.errors import ConfigError
from verl_agentic.credit.advantage import load_advantage
from verl_agentic.credit.advantages.safe_grpo import z_scores

SAFE_GRPO = load_advantage("safe_grpo")


def advantages(batch, **options) -> list[float]:
    return per_row(SAFE_GRPO(batch, **options).advantages_BT, batch.mask_BT)


@pytest.mark.parametrize(
    ("outcomes", "verls", "seeds"),
    [
        ([1, 0, 0, 1], [0.866024, -0.866024, -0.866024, 0.866024], [1.0, -1.0, -1.0, 1.0]),
        ([1, 0, 0, 0], [1.499997, -0.499999, -0.499999, -0.499999], [1.732051, -0.57735, -0.57735, -0.57735]),
        ([1, 1, 1, 1], [0.0] * 4, [0.0] * 4),
        (
            [1.0, 0.5, 0.25, -0.2],
            [1.223469, 0.224719, -0.274656, -1.173532],
            [1.412743, 0.259483, -0.317146, -1.35508],
        ),
    ],
)
def test_outcomes_are_divided_by_the_standard_deviation_of_either_convention(outcomes, verls, seeds) -> None:
    batch = make_batch(outcomes)
    assert advantages(batch) == pytest.approx(verls, abs=1e-6)
    assert advantages(batch, ddof=0, epsilon=1e-8) == pytest.approx(seeds, abs=1e-6)


def test_a_group_of_one_says_nothing_unless_its_bare_reward_is_asked_for() -> None:
    batch = make_batch([0.7])
    assert advantages(batch) == [0.0]
    assert advantages(batch, singleton="raw") == pytest.approx([0.699999], abs=1e-6)


def test_a_session_whose_siblings_are_void_is_a_group_of_one() -> None:
    batch = make_batch([0.7, 1.0, 1.0, 0.0], groups=["a", "a", "b", "b"], void=[1])
    assert advantages(batch) == pytest.approx([0.0, 0.0, 0.707106, -0.707106], abs=1e-6)
    assert advantages(batch, singleton="raw") == pytest.approx([0.699999, 0.0, 0.707106, -0.707106], abs=1e-6)


@pytest.mark.parametrize(
    ("epsilon", "common", "last"), [(1e-6, -0.00025, 0.00075), (1e-8, -0.02381, 0.071429), (0.0, -0.5, 1.5)]
)
def test_between_nearly_equal_rewards_epsilon_decides(epsilon, common, last) -> None:
    rewards_S = torch.tensor([0.3, 0.3, 0.3, 0.3 + 1e-9], dtype=torch.float64)
    scores_S = z_scores(
        rewards_S, torch.zeros(4).long(), valid_S=torch.ones(4).bool(), num_groups=1, ddof=1, epsilon=epsilon
    )
    assert scores_S.tolist() == pytest.approx([common] * 3 + [last], rel=2e-3)


def test_a_floor_damps_groups_that_are_almost_constant_and_no_others() -> None:
    floored = {"ddof": 0, "epsilon": 0.0, "std_floor": 0.1}
    near = make_batch([0.5, 0.5, 0.5, 0.52])
    assert advantages(near, **floored) == pytest.approx([-0.05, -0.05, -0.05, 0.15], abs=1e-6)
    # The least significant bits of 0.52 in float32.
    unclamped = advantages(near, ddof=0, epsilon=1e-8)
    assert unclamped == pytest.approx([-0.57735, -0.57735, -0.57735, 1.732049], abs=1e-5)
    assert advantages(make_batch([1, 0, 0, 1]), **floored) == pytest.approx([1.0, -1.0, -1.0, 1.0])
    assert advantages(make_batch([1, 1, 1, 1]), **floored) == [0.0] * 4


def test_a_group_of_one_success_in_64_is_far_out() -> None:
    assert max(advantages(make_batch([1] + [0] * 63))) == pytest.approx(7.874937, abs=1e-6)


@pytest.mark.parametrize(
    "options", [{"ddof": 2}, {"epsilon": -1.0}, {"std_floor": -0.1}, {"singleton": "one"}, {"clip": 5}]
)
def test_options_that_cannot_work_are_refused(options) -> None:
    with pytest.raises(ConfigError, match="safe_grpo"):
        SAFE_GRPO(make_batch([1, 0]), **options)
