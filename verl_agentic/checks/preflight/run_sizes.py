"""Sizes of a planned run that several checks and its numbers need."""

from __future__ import annotations

import math

from verl_agentic.checks.preflight.planned_run import PlannedRun

_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
POSITIVE = (
    *(f"data.{name}" for name in ("train_batch_size", "gen_batch_size", "max_prompt_length", "max_response_length")),
    *("data.val_batch_size", "data.train_max_samples", "data.val_max_samples"),
    *(f"{_ROLLOUT}.{name}" for name in ("n", "val_kwargs.n", "prompt_length", "response_length", "max_model_len")),
    *(f"{_ROLLOUT}.{kind}_parallel_size" for kind in ("tensor_model", "data", "pipeline_model")),
    *(f"{_ROLLOUT}.{name}" for name in ("agent.num_workers", "max_num_seqs", "log_prob_micro_batch_size_per_gpu")),
    *(f"{_ROLLOUT}.{name}" for name in ("max_num_batched_tokens", "log_prob_max_token_len_per_gpu")),
    *(
        f"{section}.{name}"
        for section in (_ACTOR, "critic")
        for name in ("ppo_mini_batch_size", "ppo_epochs", "ppo_micro_batch_size_per_gpu", "ppo_max_token_len_per_gpu")
    ),
    *(f"trainer.{name}" for name in ("nnodes", "n_gpus_per_node", "total_epochs", "total_training_steps")),
    "trainer.v1.separate_async.parameter_sync_step",
    "reward.num_workers",
)
_FSDP = ("fsdp", "fsdp2")
_NO_LIMIT = {"data.train_max_samples": -1, "data.val_max_samples": -1}
"""Keys with a value that means no limit."""


def sizes_below_1(run: PlannedRun) -> dict[str, float]:
    """Returns key -> value of the sizes by which others are divided, or of which there must be one."""
    values = {path: run.number(path, 1) for path in POSITIVE}
    return {path: value for path, value in values.items() if value < 1 and value != _NO_LIMIT.get(path)}


def sequence_parallel(run: PlannedRun) -> int:
    """Returns the number of ranks of an FSDP actor that share one sequence."""
    outer = run.number(f"{_ACTOR}.ulysses_sequence_parallel_size", 1)
    return int(max(1, outer, run.number(f"{_ACTOR}.fsdp_config.ulysses_sequence_parallel_size", 1)))


def data_parallel(run: PlannedRun) -> int | None:
    """Returns the number of data-parallel ranks of the actor; None for other engines than FSDP."""
    if run.get(f"{_ACTOR}.strategy") not in _FSDP:
        return None
    return max(1, run.num_gpus // sequence_parallel(run))


def padded_samples(run: PlannedRun) -> int:
    """Returns the samples of a batch with the padding that mini-batches and ranks need."""
    n = int(run.number(f"{_ROLLOUT}.n", 1))
    multiple = math.lcm(data_parallel(run) or 1, int(run.number(f"{_ACTOR}.ppo_mini_batch_size", 1)) * n)
    if has_critic(run):
        multiple = math.lcm(multiple, int(run.number("critic.ppo_mini_batch_size", 1)) * n)
    return math.ceil(count_samples(run) / multiple) * multiple


def count_samples(run: PlannedRun) -> int:
    """Returns the samples of a batch, without padding."""
    prompts = int(run.number("data.train_batch_size", 1)) // run.parameter_sync_step
    return prompts * int(run.number(f"{_ROLLOUT}.n", 1))


def has_critic(run: PlannedRun) -> bool:
    """Returns whether the run trains a critic."""
    enabled = run.get("critic.enable")
    return bool(enabled) if enabled is not None else run.get("algorithm.adv_estimator") == "gae"
