"""Validation tells failures of the infrastructure from failures of the policy."""

from __future__ import annotations

from typing import Any, cast

import pytest
from verl.trainer.ppo.metric_utils import process_validation_metrics
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl_versions import AFTER_MAIN, is_meant

import verl_agentic.verl.extensions.monitoring.validation_rows  # noqa: F401

COUNTS_FAILED = is_meant(AFTER_MAIN)
"""Whether verl counts sessions that raised in `acc`."""


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
        **({"expected_acc_counts": {("math", "a"): expected}} if COUNTS_FAILED else {}),
    )


@pytest.mark.parametrize(("void", "failed"), [([0.0, 1.0], 0), ([0.0, 1.0], 1), ([1.0, 0.0, 1.0], 0), ([0.0], 1)])
def test_void_episodes_count_as_0_only_in_verls_acc(void: list[float], failed: int) -> None:
    found, expected = validate(void, expected=len(void) + failed), len(void) + failed
    if COUNTS_FAILED:
        assert found[f"val-core/math/acc/mean@{expected}"] == pytest.approx(1 / expected)
    played_only = "val-aux/math/acc_success_only/mean@1" if COUNTS_FAILED else "val-core/math/acc/mean@1"
    assert found[played_only] == 1.0
    for name in ("reward", "score", "weighted/env"):
        assert found[f"val-aux/math/{name}/mean@1"] == 1.0, name
    assert found[f"val-aux/math/void/mean@{len(void)}"] == pytest.approx(sum(void) / len(void))
    assert found[f"val-aux/math/num_turns/mean@{len(void)}"] == 2.0


def test_without_a_result_there_is_no_curve() -> None:
    assert not [name for name in validate([1.0, 1.0], expected=2) if "acc" in name or "reward" in name]


def test_rows_of_other_loops_stay_as_they_are() -> None:
    found = process_validation_metrics(["math"] * 2, ["a"] * 2, {"acc": [1.0, 0.0]})
    assert found["math"]["acc"]["mean@2"] == 0.5
