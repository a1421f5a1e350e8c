"""The check `quickstart`: SFT and GRPO of the tiny model, with the rollout server on the same device, in float32."""

from __future__ import annotations

from _gpu_check import Check
from _gpu_training import judge_success, run_quickstart


def run(check: Check) -> None:
    training = run_quickstart(check)
    judge_success(check, training, max_probs_diff=1e-4)
