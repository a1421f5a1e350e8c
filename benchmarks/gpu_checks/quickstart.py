"""The check `quickstart`: SFT and GRPO of the tiny model, with the rollout server on the same device, in float32."""

from __future__ import annotations

from _gpu_check import Check
from _gpu_training import judge_success, rehearsal_flags, run_quickstart


def run(check: Check) -> None:
    training = run_quickstart(check, *rehearsal_flags(check))
    largest = training.max_of("training/rollout_probs_diff_max")
    check.judge("largest difference of probabilities, rollout to trainer, in all steps", largest, max_value=1e-4)
    judge_success(check, training)
