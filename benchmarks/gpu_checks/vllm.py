"""The check `vllm`: GRPO of the quickstart with verl's own rollout on vLLM, after the SFT of the check `quickstart`."""

from __future__ import annotations

import importlib.util

from _gpu_check import Check
from _gpu_training import judge_success, rehearsal_flags, run_quickstart


def run(check: Check) -> None:
    if importlib.util.find_spec("vllm") is None:
        check.skip("vLLM is not installed; install the version that verl names: pip install 'verl[vllm]'")
        return
    training = run_quickstart(check, "--engine", "vllm", *rehearsal_flags(check), after="quickstart")
    largest = training.max_of("training/rollout_probs_diff_max")
    check.judge("largest difference of probabilities, rollout to trainer, in all steps", largest, max_value=0.2)
    judge_success(check, training)
