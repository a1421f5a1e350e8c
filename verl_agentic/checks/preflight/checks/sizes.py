"""Sizes and counts that must be at least 1."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, fail, ok
from verl_agentic.checks.preflight.planned_run import PlannedRun

_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
_POSITIVE = (
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
_NO_LIMIT = {"data.train_max_samples": -1, "data.val_max_samples": -1}
"""Keys with a value that means no limit."""


def sizes(run: PlannedRun) -> list[Finding]:
    """Returns sizes and counts below 1: no batch, no sample, no step or no GPU."""
    return [
        fail(f"{path} must be at least 1, got {value:g}", "set a size, or leave it as verl has it")
        for path, value in sizes_below_1(run).items()
    ] or [ok("every size and count is at least 1")]


def sizes_below_1(run: PlannedRun) -> dict[str, float]:
    """Returns key -> value of the sizes by which others are divided, or of which there must be one."""
    values = {path: run.number(path, 1) for path in _POSITIVE}
    return {path: value for path, value in values.items() if value < 1 and value != _NO_LIMIT.get(path)}
