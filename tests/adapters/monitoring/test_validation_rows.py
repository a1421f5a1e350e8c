"""Validation tells failures of the infrastructure from failures of the policy."""

from __future__ import annotations

from typing import Any, cast

import pytest
from verl.trainer.ppo.metric_utils import process_validation_metrics
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

import verl_agentic.adapters.monitoring.validation_rows  # noqa: F401


def validate(void: list[float], *, expected: int) -> dict[str, Any]:
    """Returns the metrics of sessions of one prompt, each of which has solved it or is void."""
    solved = [1.0 - value for value in void]
    numbers = {"reward": solved, "acc": solved, "score": solved, "weighted/env": solved, "num_turns": [2.0] * len(void)}
    return PPOTrainer._val_metrics_update(
        cast("Any", None),
        ["math"] * len(void),
        ["a"] * len(void),
        {**numbers, "void": void},
        sample_turns=[],
        expected_acc_counts={("math", "a"): expected},
    )


@pytest.mark.parametrize(("void", "failed"), [([0.0, 1.0], 0), ([0.0, 1.0], 1), ([1.0, 0.0, 1.0], 0), ([0.0], 1)])
def test_void_episodes_count_as_0_only_in_verls_acc(void: list[float], failed: int) -> None:
    found, expected = validate(void, expected=len(void) + failed), len(void) + failed
    assert found[f"val-core/math/acc/mean@{expected}"] == pytest.approx(1 / expected)
    for name in ("acc_success_only", "reward", "score", "weighted/env"):
        assert found[f"val-aux/math/{name}/mean@1"] == 1.0, name
    assert found[f"val-aux/math/void/mean@{len(void)}"] == pytest.approx(sum(void) / len(void))
    assert found[f"val-aux/math/num_turns/mean@{len(void)}"] == 2.0


def test_without_a_result_there_is_no_curve() -> None:
    assert not [name for name in validate([1.0, 1.0], expected=2) if "acc" in name or "reward" in name]


def test_rows_of_other_loops_stay_as_they_are() -> None:
    found = process_validation_metrics(["math"] * 2, ["a"] * 2, {"acc": [1.0, 0.0]})
    assert found["math"]["acc"]["mean@2"] == 0.5
