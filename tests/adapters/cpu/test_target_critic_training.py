"""ArCHer with a target network, in whole runs of `python -m verl.trainer.main_ppo` on the CPU."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from verl_runs import make_run

pytestmark = pytest.mark.slow


def test_archer_learns_from_a_target_that_lags_behind_and_is_resumed_with(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.settings = {
        "algorithm.adv_estimator": "archer",
        "trainer.v1.trainer_mode": "agentic_sync",
        "critic.enable": True,
        "critic.optim.lr": 1e-3,
        "+critic.target": "{tau: 0.1}",
        "trainer.save_freq": 2,
    }
    first, second = run.finish()
    assert first["credit/target_gap"] == pytest.approx(0.0, abs=1e-6) and second["credit/target_gap"] > 1e-4
    assert all(math.isfinite(step["critic/grad_norm"]) and step["critic/grad_norm"] > 0 for step in (first, second))
    assert (run.checkpoints / "global_step_2/critic/target_world_size_1_rank_0.pt").is_file()
    run.settings |= {"trainer.resume_mode": "auto", "trainer.total_training_steps": 3}
    (third,) = run.finish("resumed")
    # One that started from the critic again would be it.
    assert third["step"] == 3 and third["credit/target_gap"] > 1e-4
