"""A run of `verl-agentic quickstart` in a check of `gpu.py`, with the figures of its RL as they are logged."""

from __future__ import annotations

import json
import math
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _gpu_check import Check
from _report import median

from verl_agentic.cpu.quickstart.child_process import MemoryMeter, run_child

COMMAND = (sys.executable, "-c", "import sys; from verl_agentic.cli import main; sys.exit(main())")
"""`verl-agentic` of this interpreter."""
_NOTED = (
    "episode/acc",
    "training/rollout_probs_diff_max",
    "timing_s/step",
    "timing_s/gen",
    "timing_s/old_log_prob",
    "timing_s/update_actor",
    "timing_s/update_weights",
    "perf/throughput",
    "perf/mfu/actor",
    "perf/max_memory_allocated_gb",
)


@dataclass
class Training:
    """The RL stage of a run, and the run's summary once it has ended."""

    out: Path
    summary: dict[str, Any] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    """Metrics of each training step."""
    started_at: float | None = None
    first_step_s: float = math.nan
    """Seconds from the start of the trainer to the metrics of its first step."""

    def follow(self, check: Check) -> None:
        """Reads the steps that have been logged since the last call, and notes their figures."""
        if self.started_at is None and (self.out / "logs" / "rl.log").exists():
            self.started_at = time.monotonic()
        lines = [line for path in self.out.glob("logs/rl_*.jsonl") for line in path.read_text().split("\n")[:-1]]
        steps = [data for line in lines if "timing_s/step" in (data := json.loads(line)["data"])]
        if len(steps) > len(self.steps):
            if math.isnan(self.first_step_s) and self.started_at is not None:
                self.first_step_s = time.monotonic() - self.started_at
            self.steps = steps
            check.note({name: self.values(name) for name in _NOTED if self.values(name)})

    def values(self, name: str) -> list[float]:
        """Returns a metric of all steps that have it, with four digits."""
        return [float(f"{step[name]:.4g}") for step in self.steps if name in step]

    def max_of(self, name: str) -> float:
        """Returns the largest value of a metric; NaN if no step has it, or one is NaN."""
        values = self.values(name)
        return math.nan if not values or any(map(math.isnan, values)) else max(values)

    def median_of(self, name: str) -> float:
        """Returns the median of a metric; the first step warms up and is left out. NaN if no other step has it."""
        values = self.values(name)[1:]
        return median(values) if values else math.nan


def run_quickstart(
    check: Check, *flags: str, recipe: str = "quickstart", rl_overrides: Sequence[str] = (), after: str | None = None
) -> Training:
    """Trains by SFT and RL, on a CPU a tiny model with few rows; returns the steps of RL and the summary.

    Args:
        check: gets the figures of each step.
        flags: of `verl-agentic quickstart`.
        recipe: the course.
        rl_overrides: of the config of RL, on a GPU.
        after: check whose model, data and SFT are used, if it has run.

    Raises:
        ChildFailedError: the run failed.
    """
    out = check.folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    if after is not None and (check.out / after / "run").is_dir():
        shutil.copytree(check.out / after / "run", out, ignore=shutil.ignore_patterns("rl", "rl[._]*", "eval_rl*"))
    if check.is_gpu:
        course: dict[str, Any] = {}
    else:
        course, rl_overrides, flags = _REHEARSED_COURSE, _REHEARSED_RL, (*flags, *_REHEARSAL)
    if rl_overrides:
        stages = {"stages": [{"sft": {}}, {"rl": {"overrides": rl_overrides}}]}
        recipe = str(_write_course(check, {"extends": recipe, **course, **stages}))
    training, meter = Training(out), MemoryMeter()
    try:
        run_child(
            [*COMMAND, "quickstart", "--recipe", recipe, "--device", check.device, "--out", str(out), *flags],
            log=check.folder / "quickstart.log",
            environment={},
            meter=meter,
            on_poll=lambda: training.follow(check),
        )
    finally:
        meter.stop()
    training.follow(check)
    training.summary = json.loads((out / "summary.json").read_text())
    check.note(
        {
            "seconds to the first step of GRPO": training.first_step_s,
            "peak memory of the processes, GB": round(meter.peak_bytes / 2**30, 1),
            **training.summary,
        }
    )
    return training


def _write_course(check: Check, course: Mapping[str, Any]) -> Path:
    """Writes a course of the check; returns its folder."""
    folder = check.folder / "course"
    folder.mkdir(exist_ok=True)
    (folder / "course.yaml").write_text(json.dumps(course))
    return folder


_REHEARSAL = ("--sft-steps", "2", "--rl-steps", "2", "--eval-tasks", "4")
_REHEARSED_COURSE = {"model": "", "num_train": 16, "num_demos": 128}
_REHEARSED_RL = (
    "data.train_batch_size=2",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "actor_rollout_ref.rollout.n=4",
)


def judge_success(check: Check, training: Training, *, max_probs_diff: float) -> None:
    """Judges a run of the tiny model: probabilities of rollout and trainer, and success on held-out tasks."""
    name = "largest difference of probabilities, rollout to trainer, in all steps"
    check.judge(name, training.max_of("training/rollout_probs_diff_max"), max_value=max_probs_diff)
    check.judge("success after GRPO, sampled", training.summary["success_rl"], min_value=0.85, only_gpu=True)
    check.judge("success after GRPO, greedy", training.summary["greedy_rl"], min_value=0.95, only_gpu=True)
