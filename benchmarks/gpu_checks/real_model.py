"""The check `real_model`: SmolLM2-135M learns to answer everyday questions with Python, at the speed of the GPU.

A CPU rehearses the course with the tiny model.
"""

from __future__ import annotations

from _gpu_check import Check
from _gpu_training import run_quickstart

from verl_agentic.base.errors import AgenticError

_MODEL = "smollm2"
_NUM_PROMPTS, _GROUP_SIZE, _MAX_STEPS = 16, 8, 25
_RL = (
    f"data.train_batch_size={_NUM_PROMPTS}",
    f"actor_rollout_ref.actor.ppo_mini_batch_size={_NUM_PROMPTS}",
    f"actor_rollout_ref.rollout.n={_GROUP_SIZE}",
    f"actor_rollout_ref.rollout.max_num_seqs={_NUM_PROMPTS * _GROUP_SIZE}",
    # The recipe's few rows a pass suit the memory of a CPU.
    f"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={_NUM_PROMPTS * _GROUP_SIZE // 2}",
    f"actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu={_NUM_PROMPTS * _GROUP_SIZE // 2}",
)


def run(check: Check) -> None:
    if check.is_gpu:
        from verl_agentic.cpu.model_fetch.fetch import model_folder

        try:
            model_folder(_MODEL, dtype="bfloat16")
        except AgenticError as error:
            check.skip(f"the model is not here; run verl-agentic model fetch {_MODEL}. {error}")
            return
    training = run_quickstart(check, "--rl-steps", str(_MAX_STEPS), recipe=_MODEL, rl_overrides=_RL)
    success, gen_s = training.summary["success_rl"], training.median_of("timing_s/gen")
    check.judge(f"success after {_MAX_STEPS} steps", success, min_value=0.9, only_gpu=True)
    check.judge("seconds of a step, median", training.median_of("timing_s/step"), max_value=3, only_gpu=True)
    check.judge("seconds to the first step", training.first_step_s, max_value=45, only_gpu=True)
    check.judge(f"seconds of {_NUM_PROMPTS * _GROUP_SIZE} episodes, median", gen_s, max_value=1, only_gpu=True)
