"""A critic that classifies returns, in a whole run of `python -m verl.trainer.main_ppo` on the CPU."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from safetensors import safe_open
from verl_runs import make_run

pytestmark = pytest.mark.slow


def test_a_critic_with_bins_trains_under_gae_and_keeps_them_in_its_checkpoint(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.settings = {
        "algorithm.adv_estimator": "gae",
        "critic.optim.lr": 1e-3,
        "critic.ppo_epochs": 4,
        "critic.checkpoint.save_contents": "[model, hf_model]",
        "critic.checkpoint.load_contents": "[model]",
        "+critic.categorical": "{low: -0.5, high: 1.5, bins: 16}",
        "trainer.save_freq": 2,
    }
    first, second = run.finish()
    for step in (first, second):
        assert step["critic/returns_outside_bins"] == 0
        assert math.isfinite(step["critic/grad_norm"]) and step["critic/grad_norm"] > 0
    # The new head takes all bins for equally likely: the cross-entropy is ln 16, the value the middle, 0.5.
    assert first["critic/values/mean"] == pytest.approx(0.5, abs=0.1)
    assert second["critic/vf_loss"] < first["critic/vf_loss"] < math.log(16) + 0.2
    # A random model earns nothing.
    assert abs(second["critic/values/mean"]) < abs(first["critic/values/mean"])
    (folder,) = run.checkpoints.glob("global_step_2/critic/huggingface")
    assert json.loads((folder / "config.json").read_text())["value_bins"] == {"low": -0.5, "high": 1.5, "bins": 16}
    with safe_open(folder / "model.safetensors", "pt") as weights:
        assert weights.get_slice("score.weight").get_shape()[0] == 16
