"""Whole runs of `python -m verl.trainer.main_ppo` on the CPU."""

from __future__ import annotations

import math
from importlib.resources import files
from pathlib import Path

import psutil
import pytest
import torch
import yaml
from verl_runs import make_run, wait_for

pytestmark = pytest.mark.slow


def test_the_trainer_agrees_with_the_server_and_hardly_waits(tmp_path: Path) -> None:
    steps = make_run(tmp_path).finish()
    assert [s["step"] for s in steps] == [1, 2]
    for step in steps:
        assert step["training/rollout_probs_diff_max"] < 1e-4
        assert sum(value for name, value in step.items() if name.startswith("episode/stop/")) == pytest.approx(1)
    # One poll at most is waited for when the batch is ready: the interval, which tests/adapters/test_replay_buffer.py
    # shows to be the one of the YAML, bounds the wait.
    config = yaml.safe_load(files("verl_agentic.config").joinpath("agentic/cpu.yaml").read_text())
    poll_s = config["trainer"]["v1"]["sampler"]["sampler_kwargs"]["poll_interval_s"]
    assert poll_s / steps[-1]["timing_s/step"] < 0.15


def test_two_ranks_train_an_actor_with_a_reference_and_a_critic(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.settings = {
        "trainer.n_gpus_per_node": 2,
        "algorithm.adv_estimator": "gae",
        "actor_rollout_ref.actor.use_kl_loss": True,
        "critic.optim.lr": 1e-3,
        "trainer.save_freq": 2,
    }
    steps = run.finish()
    for step in steps:
        assert step["training/rollout_probs_diff_max"] < 1e-4
        assert step["critic/vf_loss"] > 0 and math.isfinite(step["critic/vf_loss"])
    # The reference is the first actor: it agrees before the first update, and not after it.
    assert abs(steps[0]["actor/kl_loss"]) < 1e-6 < abs(steps[1]["actor/kl_loss"])
    assert {p.name for p in (run.checkpoints / "global_step_2").iterdir()} >= {"actor", "critic"}


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
    # Rows of the newest weights: trainer and server agree after the adapters were merged into what is served.
    fresh = [s for s in steps if int(s["training/off_policy/trajectory_staleness/max"]) == 0]
    assert fresh and all(s["training/rollout_probs_diff_max"] < 1e-4 for s in fresh)


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


def test_a_run_that_was_killed_goes_on_from_its_last_checkpoint_and_back_to_it_at_every_alarm(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.settings = {"trainer.save_freq": 2, "trainer.total_training_steps": 5, "trainer.resume_mode": "auto"}
    with run.start("killed") as process:
        saved = run.checkpoints / "latest_checkpointed_iteration.txt"
        wait_for(lambda: saved.is_file() and len(run.metrics("killed")) >= 3, timeout_s=300, process=process)
        family = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait()
        _, alive = psutil.wait_procs(family, timeout=60)
        # Ray's agents look for their raylet now and then; what trains and what holds memory goes at once.
        assert all("Agent" in survivor.name() for survivor in alive)
        for survivor in alive:
            survivor.kill()
    done = int(saved.read_text())
    health = "actor_rollout_ref.rollout.custom.agentic.health"
    run.settings |= {  # an alarm that is always raised
        f"+{health}.actions.truncation": "rollback",
        f"+{health}.thresholds.truncation": "{share: -1.0, window: 1, patience: 1}",
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
