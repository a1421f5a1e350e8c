"""The check `vllm`: GRPO of the quickstart with verl's own rollout on vLLM, after the SFT of the check `quickstart`."""

from __future__ import annotations

import importlib.util

from _gpu_check import Check
from _gpu_training import judge_success, run_quickstart


def run(check: Check) -> None:
    if importlib.util.find_spec("vllm") is None:
        check.skip("vLLM is not installed; install the version that verl names: pip install 'verl[vllm]'")
        return
    training = run_quickstart(check, "--engine", "vllm", after="quickstart")
    judge_success(check, training, max_probs_diff=0.2)
