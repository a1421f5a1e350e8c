"""Gates, replay and curricula under verl's own trainers and queue."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from patience import PATIENCE_S
from verl_runs import Run, make_run, wait_for

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
GATE = "training/gate/"


def make_outcome_run(folder: Path, outcome: str) -> Run:
    """Returns a run whose outcomes the options of `outcomes.alternating` choose, and that stores what it trains on."""
    run = make_run(folder)
    run.settings = {
        "trainer.rollout_data_dir": folder / "rollouts",
        "agentic.rubric.components": f"[{{use: '{HERE / 'outcomes.py'}:alternating', options: {outcome}}}]",
    }
    return run


def add_gates(run: Run, **options: Any) -> None:
    run.settings |= {
        "agentic.sampling.gates": "[zero_variance]",
        **{f"agentic.sampling.{name}": value for name, value in options.items()},
    }


def trained_groups(run: Run, step: int) -> dict[str, list[dict[str, Any]]]:
    """Returns the rows of every group that a step trained on."""
    lines = (run.folder / "rollouts" / f"{step}.jsonl").read_text().splitlines()
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in map(json.loads, lines):
        groups[row["uid"].rsplit("_", 2)[0]].append(row)
    return dict(groups)


def scores(rows: list[dict[str, Any]]) -> list[float]:
    return sorted(row["score"] for row in rows)


def test_groups_without_signal_are_replaced_until_there_are_no_others(tmp_path: Path) -> None:
    dry = tmp_path / "dry"
    run = make_outcome_run(tmp_path, f"{{hopeless: 2, until: '{dry}'}}")
    add_gates(run, keep_surplus=1, window=16)
    run.settings["trainer.total_training_steps"] = 1000
    with run.start() as process:
        wait_for(lambda: len(run.metrics()) >= 3, process=process)
        dry.touch()
        assert process.wait(PATIENCE_S) != 0
    log = (run.folder / "metrics.log").read_text(errors="replace")
    assert "StarvationError: gates drop nearly everything, got " in log
    assert "% of the last 16 were dropped (all_0 " in log and "the tasks are too hard" in log
    steps = run.metrics()[:3]
    assert [step[GATE + "zero_variance/dropped_groups"] for step in steps] == [2, 0, 0]
    # More is played than is missing, for some of it may be dropped: what is left over is trained on in the next step.
    assert steps[0][GATE + "surplus/kept_groups"] > 0 == steps[0][GATE + "lag/max"]
    assert steps[1][GATE + "surplus/used_groups"] == steps[0][GATE + "surplus/kept_groups"]
    assert steps[1][GATE + "lag/max"] == steps[1]["training/off_policy/trajectory_staleness/max"] == 1
    groups = [trained_groups(run, step) for step in (1, 2, 3)]
    assert all(scores(rows) == [0, 1] for of_step in groups for rows in of_step.values())
    assert len({uid for of_step in groups for uid in of_step}) == 12, "four in a step, none twice"
    assert all(step["actor/grad_norm"] > 0 for step in steps)


@pytest.mark.nightly
def test_earlier_groups_take_the_place_of_those_without_signal(tmp_path: Path) -> None:
    run = make_outcome_run(tmp_path, "{hopeless: 100, every: 3}")
    add_gates(run, replay="{capacity: 8, share: 0.5}")
    run.settings |= {
        "trainer.v1.trainer_mode": "agentic_colocate_async",
        "trainer.total_training_steps": 6,
        "trainer.save_freq": 6,
        "trainer.resume_mode": "auto",
        "algorithm.adv_estimator": "per_use",  # divides by the uses of a row
        "algorithm.rollout_correction.rollout_is": "token",
    }
    steps = run.finish()
    replayed = [int(step[GATE + "replay/used_groups"]) for step in steps]
    assert replayed[0] == 0 < sum(replayed) and max(replayed) <= 2
    seen: set[str] = set()
    for step, expected in zip(steps, replayed, strict=True):
        groups = trained_groups(run, step["step"])
        assert len(groups) == 4 and all(scores(rows) == [0, 1] for rows in groups.values())
        written = {"|".join(sorted(row["output"] for row in rows)) for rows in groups.values()}
        # A random model does not write the same twice.
        assert len(written & seen) == expected and len(written) == 4
        seen |= written
        if expected:
            assert step[GATE + "replay/uses"] >= 2 and 1 <= step[GATE + "replay/lag/mean"] <= 5
            # The log-probs are those of the weights that sampled the rows: the trained weights differ from them.
            assert step["training/rollout_probs_diff_max"] > 1e-4
    run.settings["trainer.total_training_steps"] = 7
    (resumed,) = run.finish("resumed")
    assert resumed["step"] == 7 and resumed[GATE + "replay/stored_groups"] >= steps[-1][GATE + "replay/stored_groups"]


def test_a_curriculum_its_group_sizes_and_a_target_critic_survive_the_end_of_a_run(tmp_path: Path) -> None:
    run = make_outcome_run(tmp_path, "{hopeless: 100, every: 2}")
    run.settings |= {
        "trainer.v1.trainer_mode": "agentic_sync",
        "algorithm.adv_estimator": "archer",
        "critic.enable": True,
        "critic.optim.lr": 1e-3,
        "agentic.critic.target": "{tau: 0.1}",
        "data.train_max_samples": 4,
        "data.seed": 1,
        "data.dataloader_num_workers": 0,
        "agentic.curriculum.name": "learnability",
        "agentic.curriculum.floor": 0.9,  # all four prompts come in nearly every step
        "agentic.curriculum.prior_trials": 0.1,
        "agentic.curriculum.group_size.least": 2,
        "agentic.curriculum.group_size.most": 8,
        "actor_rollout_ref.rollout.n": 4,
        "trainer.total_training_steps": 3,
        "trainer.save_freq": 3,
        "trainer.resume_mode": "auto",
    }
    steps = run.finish()
    run.settings["trainer.total_training_steps"] = 4
    (resumed,) = run.finish("resumed")
    assert [step["step"] for step in (*steps, resumed)] == [1, 2, 3, 4]
    sizes = [sorted(len(rows) for rows in trained_groups(run, step).values()) for step in (1, 2, 3, 4)]
    assert sizes[0] == [4] * 4, "nothing is known yet"
    for of_step in sizes[1:]:
        assert sum(of_step) == 16 and 2 <= of_step[0] < of_step[-1] <= 8, "what is never solved gets less"
    assert steps[0]["curriculum/seen_share"] == resumed["curriculum/seen_share"] == 1
    before, after = (saved_rates(run, step) for step in (3, 4))
    assert before["groups"].sum() == 12 and after["groups"].sum() == 16
    assert (after["groups"] >= before["groups"]).all()
    # The target lags behind the critic; one that had started from the critic again would be it.
    gaps = [step["credit/target_gap"] for step in (*steps, resumed)]
    assert gaps[0] == pytest.approx(0.0, abs=1e-6) and min(gaps[1:]) > 1e-4
    assert all(math.isfinite(step["critic/grad_norm"]) and step["critic/grad_norm"] > 0 for step in (*steps, resumed))
    assert (run.checkpoints / "global_step_3/critic/target_world_size_1_rank_0.pt").is_file()


def saved_rates(run: Run, step: int) -> dict[str, Any]:
    """Returns the table of pass rates in a checkpoint."""
    todo = [torch.load(run.checkpoints / f"global_step_{step}" / "data.pt", weights_only=False)]
    while todo:
        state = todo.pop()
        if isinstance(state, dict):
            if "rates" in state:
                return state["rates"]
            todo += state.values()
    raise AssertionError("the checkpoint has no pass rates")
