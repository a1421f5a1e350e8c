"""The check `real_model`: SmolLM2-135M learns to answer everyday questions with Python, at the speed of the GPU.

A CPU rehearses the course with the tiny model.
"""

from __future__ import annotations

import subprocess

from _gpu_check import Check
from _gpu_training import COMMAND, REHEARSAL, run_quickstart

_FETCH = ("model", "fetch", "smollm2")
_NUM_PROMPTS, _GROUP_SIZE, _MAX_STEPS = 16, 8, 25
_RL = (
    f"data.train_batch_size={_NUM_PROMPTS}",
    f"actor_rollout_ref.actor.ppo_mini_batch_size={_NUM_PROMPTS}",
    f"actor_rollout_ref.rollout.n={_GROUP_SIZE}",
    f"actor_rollout_ref.rollout.max_num_seqs={_NUM_PROMPTS * _GROUP_SIZE}",
)


def run(check: Check) -> None:
    if check.is_gpu and subprocess.run([*COMMAND, *_FETCH]).returncode != 0:
        check.skip(
            f"the model is not here; {check.name}.log says why. Run verl-agentic {' '.join(_FETCH)} until it ends"
        )
        return
    flags, keys = (["--rl-steps", str(_MAX_STEPS)], {}) if check.is_gpu else (REHEARSAL, {"model": ""})
    training = run_quickstart(check, *flags, recipe="smollm2", keys=keys, rl=_RL)
    success, gen_s = training.summary["success_rl"], training.median_of("timing_s/gen")
    check.judge(f"success after {_MAX_STEPS} steps", success, min_value=0.9, only_gpu=True)
    check.judge("seconds of a step, median", training.median_of("timing_s/step"), max_value=3, only_gpu=True)
    check.judge("seconds to the first step", training.first_step_s, max_value=45, only_gpu=True)
    check.judge(f"seconds of {_NUM_PROMPTS * _GROUP_SIZE} episodes, median", gen_s, max_value=1, only_gpu=True)
