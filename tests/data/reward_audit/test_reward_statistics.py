"""Statistics and advantages, against hand calculations."""

from __future__ import annotations

import math

import pytest

from verl_agentic.graders.groups.group_advantages import dr_grpo, grpo, is_dropped, rloo
from verl_agentic.graders.reward_audit.reward_statistics import is_constant, percentile, spearman, variance_shares


def test_advantages_are_those_of_a_hand_calculation() -> None:
    # Mean 0.5; sum of squares 1, over n - 1 = 3: deviation sqrt(1/3).
    rewards, deviation = [1.0, 1.0, 0.0, 0.0], math.sqrt(1 / 3)
    assert grpo(rewards) == pytest.approx([0.5 / (deviation + 1e-6)] * 2 + [-0.5 / (deviation + 1e-6)] * 2)
    assert dr_grpo(rewards) == [0.5, 0.5, -0.5, -0.5]
    # The others of a 1 have the mean 1/3, those of a 0 have 2/3.
    assert rloo(rewards) == pytest.approx([2 / 3, 2 / 3, -2 / 3, -2 / 3])
    assert grpo([3.0, 3.0]) == dr_grpo([3.0, 3.0]) == rloo([3.0, 3.0]) == [0.0, 0.0]
    assert grpo([3.0]) == dr_grpo([3.0]) == rloo([3.0]) == [0.0], "nothing to compare with"
    assert grpo([]) == dr_grpo([]) == rloo([]) == []


def test_advantages_are_verls() -> None:
    torch, core = pytest.importorskip("torch"), pytest.importorskip("verl.trainer.ppo.core_algos")
    import numpy as np

    rewards = [1.3, 0.1, 0.0, 1.0, 0.2]
    mask, index = torch.ones(5, 1), np.array(["g"] * 5)
    arguments = {"token_level_rewards": torch.tensor(rewards).unsqueeze(-1), "response_mask": mask, "index": index}
    for mine, theirs in (
        (grpo, core.compute_grpo_outcome_advantage(**arguments)),
        (dr_grpo, core.compute_grpo_outcome_advantage(**arguments, norm_adv_by_std_in_grpo=False)),
        (rloo, core.compute_rloo_outcome_advantage(**arguments)),
    ):
        assert mine(rewards) == pytest.approx(theirs[0][:, 0].tolist(), abs=1e-5)


def test_dynamic_sampling_drops_groups_without_spread() -> None:
    assert is_dropped([1.0, 1.0]) and is_dropped([0.1 + 0.2, 0.3])
    assert not is_dropped([1.0, 0.0]) and not is_dropped([1.0]) and not is_dropped([])


def test_variance_is_shared_out_and_sums_to_one() -> None:
    # Group 1: outcome 1, 0 and form 0.2, 0: rewards 1.2, 0, centred +-0.6; outcome +-0.5, form +-0.1.
    # Covariances 2 * 0.5 * 0.6 = 0.6 and 2 * 0.1 * 0.6 = 0.12; total 0.72.
    # Group 2: outcomes alike; form 0, 0.2: covariance 2 * 0.1 * 0.1 = 0.02; total 0.02. What differs between groups
    # does not count.
    groups = [
        [{"outcome": 1.0, "form": 0.2, "same": 0.1}, {"outcome": 0.0, "form": 0.0, "same": 0.1}],
        [{"outcome": 1.0, "form": 0.0, "same": 0.3}, {"outcome": 1.0, "form": 0.2, "same": 0.3}],
        [],
    ]
    shares = variance_shares(groups)
    assert shares == pytest.approx({"outcome": 0.6 / 0.74, "form": 0.14 / 0.74, "same": 0.0})
    assert variance_shares([[{"outcome": 1.0}], [{"outcome": 0.0}]]) is None


def test_constant_is_what_never_differs_inside_of_a_group() -> None:
    assert is_constant([[1.0, 1.0], [0.0, 0.0], [5.0]])
    assert not is_constant([[1.0, 1.0], [0.0, 0.5]])
    assert is_constant([[1.0], [1.0]]) and not is_constant([[1.0], [0.0]]), "groups of one are compared with each other"
    assert not is_constant([[1.0]]) and not is_constant([]), "nothing to compare"


def test_ranks_correlate_as_by_hand() -> None:
    assert spearman([1.0, 2.0, 3.0], [10.0, 20.0, 1000.0]) == pytest.approx(1.0)
    # Differences of ranks 0, 1, -1: 1 - 6 * 2 / (3 * 8) = 0.5.
    assert spearman([1.0, 2.0, 3.0], [1.0, 3.0, 2.0]) == pytest.approx(0.5)
    # Ranks 0.5, 0.5, 2 and 0, 1, 2: covariance 1.5; 1.5 / sqrt(1.5 * 2).
    assert spearman([7.0, 7.0, 9.0], [1.0, 2.0, 3.0]) == pytest.approx(1.5 / math.sqrt(3.0))
    assert spearman([1.0, 1.0], [1.0, 2.0]) is None and spearman([1.0], [1.0]) is None


def test_percentiles_are_interpolated() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([0.0, 10.0], 0.95) == pytest.approx(9.5)
    assert percentile([4.0], 0.95) == 4.0
