"""Whole runs of `python -m verl.trainer.main_ppo` on the CPU."""

from __future__ import annotations

import json
import math
import signal
from pathlib import Path

import psutil
import pytest
import torch
from patience import PATIENCE_S
from safetensors import safe_open
from verl_runs import make_run, wait_for


@pytest.mark.slow
@pytest.mark.verl
def test_two_ranks_train_an_actor_with_a_reference_and_a_critic_with_bins(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.settings = {
        "trainer.n_gpus_per_node": 2,
        "algorithm.adv_estimator": "gae",
        "actor_rollout_ref.actor.use_kl_loss": True,
        "critic.optim.lr": 1e-3,
        "critic.ppo_epochs": 4,
        "critic.checkpoint.save_contents": "[model, hf_model]",
        "critic.checkpoint.load_contents": "[model]",
        "agentic.critic.categorical": "{low: -0.5, high: 1.5, bins: 16}",
        "trainer.save_freq": 2,
    }
    with run.start() as process:
        wait_for(lambda: run.metrics("metrics"), process=process)
        family = psutil.Process(process.pid).children(recursive=True)
        (warm,) = (child for child in family if any("warm_process" in word for word in child.cmdline()))
        assert len(warm.children()) >= 6, "workers are forked from one process that has imported verl"
        assert process.wait(PATIENCE_S) == 0
    first, second = run.metrics("metrics")
    for step in (first, second):
        assert step["training/rollout_probs_diff_max"] < 1e-4
        assert step["critic/returns_outside_bins"] == 0
        assert math.isfinite(step["critic/grad_norm"]) and step["critic/grad_norm"] > 0
    # The reference is the first actor: it agrees before the first update, and not after it.
    assert abs(first["actor/kl_loss"]) < 1e-6 < abs(second["actor/kl_loss"])
    # The new head, with random weights, takes all bins for about equally likely: the cross-entropy is ln 16, the value
    # near the middle of the bins, 0.5.
    assert first["critic/values/mean"] == pytest.approx(0.5, abs=0.25)
    assert 0 < second["critic/vf_loss"] < first["critic/vf_loss"] < math.log(16) + 0.2
    # A random model earns nothing.
    assert abs(second["critic/values/mean"]) < abs(first["critic/values/mean"])
    assert {p.name for p in (run.checkpoints / "global_step_2").iterdir()} >= {"actor", "critic"}
    (folder,) = run.checkpoints.glob("global_step_2/critic/huggingface")
    assert json.loads((folder / "config.json").read_text())["value_bins"] == {"low": -0.5, "high": 1.5, "bins": 16}
    with safe_open(folder / "model.safetensors", "pt") as weights:
        assert weights.get_slice("score.weight").get_shape()[0] == 16


@pytest.mark.slow
def test_lora_trains_in_the_mode_colocate_async(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.settings = {
        "trainer.v1.trainer_mode": "colocate_async",
        "trainer.total_training_steps": 3,
        "actor_rollout_ref.model.lora_rank": 8,
        "actor_rollout_ref.model.lora_alpha": 16,
        "actor_rollout_ref.model.target_modules": "all-linear",
        # A random model earns nothing; the bonus for entropy gives it something to learn.
        "actor_rollout_ref.actor.entropy_coeff": 1.0,
    }
    steps = run.finish()
    assert [s["step"] for s in steps] == [1, 2, 3]
    for step in steps:
        assert step["actor/grad_norm"] > 0
    # Rows of the newest weights: trainer and server agree after the adapters were merged into what is served. A row
    # that began before an update has some tokens of the older weights.
    for step in steps:
        if int(step["training/off_policy/trajectory_staleness_worst/max"]) == 0:
            assert step["training/rollout_probs_diff_max"] < 1e-4
        elif int(step["training/off_policy/trajectory_staleness/max"]) == 0:
            assert step["training/rollout_probs_diff_mean"] < 5e-5


@pytest.mark.nightly
def test_the_group_for_one_gpu_trains_actor_reference_and_critic_in_its_types(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.settings = {
        "+agentic": "one_gpu",
        "trainer.device": "cpu",  # a rehearsal
        "algorithm.adv_estimator": "gae",
        "actor_rollout_ref.actor.use_kl_loss": True,
        "critic.optim.lr": 1e-3,
    }
    for step in run.finish():
        assert 1e-6 < step["training/rollout_probs_diff_max"] < 0.1, "bfloat16 on both sides"
        assert 0 < step["critic/grad_norm"] < math.inf and math.isfinite(step["actor/kl_loss"])


@pytest.mark.slow
def test_separate_servers_get_the_weights_of_the_trainer(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.settings = {
        "trainer.v1.trainer_mode": "separate_async",
        "trainer.v1.separate_async.parameter_sync_step": 1,
        "trainer.total_training_steps": 3,
        "actor_rollout_ref.rollout.nnodes": 1,
        "actor_rollout_ref.rollout.n_gpus_per_node": 1,
    }
    steps = run.finish()
    assert [s["step"] for s in steps] == [1, 2, 3]
    assert steps[0]["training/rollout_probs_diff_max"] < 1e-4


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_from_its_last_checkpoint_and_back_to_it_at_every_alarm(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.settings = {"trainer.save_freq": 2, "trainer.total_training_steps": 5, "trainer.resume_mode": "auto"}
    run.settings["+agentic.log.dir"] = "null"  # with a log, the alarm is known from the steps before, and not new
    with run.start("killed") as process:
        saved = run.checkpoints / "latest_checkpointed_iteration.txt"
        wait_for(lambda: saved.is_file() and len(run.metrics("killed")) >= 3, process=process)
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGKILL)
        process.wait()
        _, alive = psutil.wait_procs(family, timeout=60)
        assert not alive
    done = int(saved.read_text())
    run.settings |= {  # an alarm that is always raised
        "+agentic.health.actions.truncation": "rollback",
        "+agentic.health.thresholds.truncation": "{share: -1.0, window: 1, patience: 1}",
    }
    steps = run.finish("resumed")
    assert [s["step"] for s in steps] == list(range(done + 1, 6))
    assert [s["health/rolled_back_to"] for s in steps] == [done] * len(steps)
    # Each step trains and samples with the weights that it went back to.
    assert all(s["training/rollout_probs_diff_max"] < 1e-4 for s in steps)
    saved_last = run.checkpoints / "unhealthy/global_step_5/actor/optim_world_size_1_rank_0.pt"
    optimizer = torch.load(saved_last, weights_only=False)
    # Adam's own count: a run that had begun anew would have counted from 0, one that did not go back to 5.
    assert {int(state["step"]) for state in optimizer["state"].values()} == {done + 1}
    assert saved.read_text() == str(done)
