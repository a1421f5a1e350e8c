"""Figures of the study of long episodes, on made-up trainings and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch


def training(method: str, seed: int, curve: list[float], **others: Any) -> dict[str, Any]:
    return {
        "method": method,
        "seed": seed,
        "success_rl": curve[-1],
        "num_plays": 100,
        "curve": curve,
        "curve_tokens": [1000.0 * (step + 1) for step in range(len(curve))],
        "steps": len(curve),
        "step_s": 10.0,
        "horizon": {"turns": 10, "episodes": 20, "variance": 1.0, "correlation": 1.0},
        **others,
    }


def test_the_interval_of_several_seeds_comes_from_their_spread_and_of_one_from_its_episodes() -> None:
    from _long_table import interval

    three = interval([0.5, 0.6, 0.7], num_plays=100)
    # 4.303 * 0.1 / sqrt(3)
    assert three.value == pytest.approx(0.6) and three.high - 0.6 == pytest.approx(0.2484, abs=1e-3)
    one = interval([0.5], num_plays=100)
    assert (one.low, one.high) == pytest.approx((0.404, 0.596), abs=1e-3)
    assert interval([0.0, 0.01, 0.02], num_plays=100).low == 0.0


def test_a_method_is_compared_with_grpo_of_the_same_rewards_on_the_seeds_of_both() -> None:
    from _long_table import Results

    results = Results()
    for seed, success in enumerate((0.4, 0.6)):
        results.add(training("grpo", seed, [0.2, success]))
    results.add(training("gigpo", 1, [0.2, 0.9]))
    results.add(training("gigpo_subgoals", 0, [0.2, 0.9]))
    assert results.ratios() == {"gigpo_vs_grpo": 1.5}


def test_a_training_that_never_reaches_the_success_has_no_tokens_to_it() -> None:
    from _long_table import Results

    results = Results()
    results.add(training("grpo", 0, [0.2, 0.9, 0.9, 0.9]))
    results.add(training("salt", 0, [0.2, 0.3, 0.3, 0.9]))
    grpo, salt = (line.split(" | ") for line in results.markdown().splitlines()[2:])
    assert (grpo[6], salt[6]) == ("4", "not reached")  # the mean of three steps: 0.2, 0.55, 0.67, 0.9
    assert grpo[8:10] == ["1.00", "10.0x"]


def test_the_agreement_of_estimated_gradients_is_the_cosine_of_two_batches() -> None:
    from _long_gradient import _jackknife

    draw = torch.Generator().manual_seed(0)
    mean_D = torch.randn(400, generator=draw, dtype=torch.float64)
    mean_D *= 2.0 / mean_D.norm()
    gradients_GD = mean_D + torch.randn(200, 400, generator=draw, dtype=torch.float64) * 0.4
    # s = 4, v = 400 * 0.16: with batches of 8 groups 4 / (4 + 8).
    found = _jackknife(gradients_GD, gradients_GD)
    assert found["agreement"][0] == pytest.approx(1 / 3, abs=4 * found["agreement"][1]) and found["agreement"][1] < 0.05
    batches_2D = gradients_GD.view(2, 100, 400)[:, :8].mean(dim=1)
    assert float(torch.cosine_similarity(*batches_2D, dim=0)) == pytest.approx(1 / 3, abs=0.2)
    assert found["cosine"][0] == pytest.approx(1.0)
    assert _jackknife(-gradients_GD, gradients_GD)["cosine"][0] == pytest.approx(-1.0)


def test_the_agreement_does_not_depend_on_the_scale() -> None:
    from _long_gradient import _jackknife

    gradients_GD = torch.randn(20, 30, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.3
    assert _jackknife(7 * gradients_GD, gradients_GD)["agreement"] == pytest.approx(
        _jackknife(gradients_GD, gradients_GD)["agreement"]
    )


def test_tokens_that_a_branch_copies_were_sampled_once() -> None:
    from _credit_budget import sampled_tokens

    segments = [[0, 5, "model", 0], [5, 9, "tool", 0], [9, 12, "model", 1]]
    assert sampled_tokens({"segments": segments, "reward_extra_info": {"shared_tokens": 0.0, "rows": 1.0}}) == 8
    assert sampled_tokens({"segments": segments, "reward_extra_info": {"shared_tokens": 5.0, "rows": 1.0}}) == 3
