"""The check `real_model`: SmolLM2-135M learns to answer everyday questions with Python, at the speed of the GPU."""

from __future__ import annotations

import subprocess

from _gpu_check import Check
from _gpu_training import COMMAND, run_quickstart

_FETCH = ("model", "fetch", "smollm2")
_MAX_STEPS = 25


def run(check: Check) -> None:
    fetched = subprocess.run([*COMMAND, *_FETCH])
    if fetched.returncode != 0:
        check.skip(f"the model is not here; run verl-agentic {' '.join(_FETCH)} where a network is, see the log")
        return
    training = run_quickstart(check, "--recipe", "smollm2", "--rl-steps", str(_MAX_STEPS))
    check.judge(f"success after {_MAX_STEPS} steps", training.summary["success_rl"], min_value=0.9)
    check.judge("seconds of a step, median", training.median_of("timing_s/step"), max_value=3, only_gpu=True)
    check.judge("seconds to the first step", training.first_step_s, max_value=45, only_gpu=True)
    check.judge("seconds of generating, median", training.median_of("timing_s/gen"), max_value=1, only_gpu=True)
