"""Measures a step of GRPO with a vocabulary of real size on a CPU, beside the same step of another checkout.

The model has 30 narrow layers and 49,152 tokens: all of its cost is logits. 16 tasks with 8 episodes each, of 48
sampled tokens, through `python -m verl.trainer.main_ppo`. Both checkouts train in turn, in processes of their own.

`step_vs_other`: seconds of a step of the other checkout over those of this one. `memory_vs_other`: the peak of this
one over the other's. The first step is left out: it compiles and allocates.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from _narrow_model import make_narrow_model
from _report import Target, median, progress, report

from verl_agentic.base.paths import recipes_dir
from verl_agentic.cpu.quickstart.child_process import CPU_ENVIRONMENT, MemoryMeter, run_child
from verl_agentic.data.prepare import make_rows
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.log.files.rows import write_rows

_TIMES = ("gen", "old_log_prob", "update_actor", "step")
_HERE = Path(__file__).parent.parent


def main() -> int:
    """Runs the trainings and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="another checkout (git worktree) to measure beside this one")
    parser.add_argument("--steps", type=int, default=3, help="steps of each training (%(default)s)")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="step_cost_") as name:
        folder = Path(name)
        figures["parameters"] = make_narrow_model(folder / "model")
        rows = make_rows(load_env_package("python_math"), split="train", count=16 * options.steps, seed=0, options=None)
        write_rows(rows, folder / "rows.jsonl")
        for side, checkout in {"other": options.against, "this": _HERE}.items():
            if checkout is not None:
                steps, peak_gb = _train(folder, side, checkout.resolve(), options.steps)
                for time in _TIMES:
                    figures[f"{side}.{time}_s"] = median([step[f"timing_s/{time}"] for step in steps[1:]])
                figures[f"{side}.memory_gb"] = median([peak_gb])
                progress(f"{side}: {figures[f'{side}.step_s']} s a step, {peak_gb:.1f} GB")
    ratios: dict[str, Any] = {"step_vs_other": None, "memory_vs_other": None}
    if options.against is not None:
        ratios["step_vs_other"] = median([figures["other.step_s"] / figures["this.step_s"]])
        ratios["memory_vs_other"] = median([figures["this.memory_gb"] / figures["other.memory_gb"]])
    return report(
        "step_cost",
        ratios=ratios,
        figures=figures,
        targets={
            "step_vs_other": Target(bound=4.0, is_goal=True),
            "memory_vs_other": Target(bound=0.25, at_least=False, is_goal=True),
        },
        reasons=dict.fromkeys(ratios, "name another checkout with --against") if options.against is None else {},
    )


def _train(folder: Path, side: str, checkout: Path, num_steps: int) -> tuple[list[dict[str, Any]], float]:
    """Trains with the package of a checkout; returns the metrics of each step, and the peak memory in GB."""
    metrics = folder / f"{side}.jsonl"
    overrides = {
        "actor_rollout_ref.model.path": folder / "model",
        "data.train_files": folder / "rows.jsonl",
        "data.val_files": folder / "rows.jsonl",
        "data.train_batch_size": 16,
        "actor_rollout_ref.rollout.n": 8,
        "data.max_response_length": 48,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 16,
        "agentic.limits.max_turns": 1,
        "trainer.default_local_dir": folder / side,
        "trainer.total_training_steps": num_steps,
        "trainer.save_freq": -1,
        "trainer.val_before_train": False,
        "trainer.test_freq": -1,
        "trainer.logger": "[file]",
        "trainer.resume_mode": "disable",
    }
    meter = MemoryMeter()
    try:
        run_child(
            [
                *(sys.executable, "-m", "verl.trainer.main_ppo", "--config-dir", str(recipes_dir() / "quickstart")),
                *("--config-name", "grpo", *(f"{key}={value}" for key, value in overrides.items())),
            ],
            log=folder / f"{side}.log",
            environment={**CPU_ENVIRONMENT, "VERL_FILE_LOGGER_PATH": str(metrics), "PYTHONPATH": str(checkout)},
            meter=meter,
        )
    finally:
        meter.stop()
    return [json.loads(line)["data"] for line in metrics.read_text().splitlines()], meter.peak_bytes / 2**30


if __name__ == "__main__":
    raise SystemExit(main())
