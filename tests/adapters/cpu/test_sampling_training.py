"""Gates, replay and curricula under verl's own trainers and queue."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from verl_runs import Run, make_run, wait_for

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
GATE = "training/gate/"
SAMPLER = "trainer.v1.sampler"


def gated_run(folder: Path, *, outcome: str = "{}", **sampler_kwargs: Any) -> Run:
    """Returns a run with gates, whose outcomes the options of `outcomes.alternating` choose."""
    run = make_run(folder)
    run.settings = {
        f"{SAMPLER}.custom_sampler.path": "pkg://verl_agentic.adapters.gated_buffer",
        f"{SAMPLER}.custom_sampler.name": "GatedReplayBuffer",
        **{f"+{SAMPLER}.sampler_kwargs.{name}": value for name, value in sampler_kwargs.items()},
        "trainer.rollout_data_dir": folder / "rollouts",
        "reward.reward_manager.name": "rubric",
        "+reward.rubric.components": f"[{{use: '{HERE / 'outcomes.py'}:alternating', options: {outcome}}}]",
    }
    return run


def trained_groups(run: Run, step: int) -> dict[str, list[float]]:
    """Returns the scores of every group that a step trained on."""
    lines = (run.folder / "rollouts" / f"{step}.jsonl").read_text().splitlines()
    groups: dict[str, list[float]] = defaultdict(list)
    for row in map(json.loads, lines):
        groups[row["uid"].rsplit("_", 2)[0]].append(row["score"])
    return dict(groups)


def test_groups_without_signal_are_replaced_and_those_left_over_are_trained_on_later(tmp_path: Path) -> None:
    run = gated_run(tmp_path, outcome="{hopeless: 2}", gates="[zero_variance]", keep_surplus=1)
    run.settings["trainer.total_training_steps"] = 3
    steps = run.finish()
    assert [step[GATE + "zero_variance/dropped_groups"] for step in steps] == [2, 0, 0]
    # What is expected to be dropped is played in addition: some of it is left over.
    assert steps[0][GATE + "surplus/kept_groups"] > 0 == steps[0][GATE + "lag/max"]
    assert steps[1][GATE + "surplus/used_groups"] == steps[0][GATE + "surplus/kept_groups"]
    assert steps[1][GATE + "lag/max"] == steps[1]["training/off_policy/trajectory_staleness/max"] == 1
    for step in steps:
        assert list(trained_groups(run, step["step"]).values()) == [[0.0, 1.0]] * 4 or step["step"]
        assert step["actor/grad_norm"] > 0
    first, second, third = (set(trained_groups(run, number)) for number in (1, 2, 3))
    assert len(first | second | third) == 12, "no group is trained on twice"
