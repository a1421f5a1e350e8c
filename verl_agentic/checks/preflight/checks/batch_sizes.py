"""Batch sizes that verl refuses only after its workers have started; each condition is verl's own."""

from __future__ import annotations

import math

from verl_agentic.base.finding import Finding, fail, not_tested, ok, warn
from verl_agentic.checks.preflight.planned_run import PlannedRun
from verl_agentic.checks.preflight.run_sizes import (
    count_samples,
    data_parallel,
    has_critic,
    padded_samples,
    sequence_parallel,
    sizes_below_1,
)

_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


def batch_sizes(run: PlannedRun) -> list[Finding]:
    """Returns sizes that do not divide each other, and padding."""
    if run.problems.get("verl") or sizes_below_1(run):
        return []  # reported by other checks
    findings = [
        *_check_sampling(run),
        *_check_ranks(run),
        *_check_micro_batches(run),
        *_check_separate_async(run),
        *_check_padding(run),
    ]
    if data_parallel(run) is None:
        strategy = run.get(f"{_ACTOR}.strategy")
        findings.append(
            not_tested(f"batches for the ranks of {_ACTOR}.strategy={strategy}", "start the run for one step")
        )
    return findings or [ok("batches, mini-batches and ranks divide each other")]


def _check_sampling(run: PlannedRun) -> list[Finding]:
    size, steps = run.number("data.train_batch_size", 1), run.parameter_sync_step
    findings = []
    if size % steps:
        findings.append(
            fail(f"data.train_batch_size={size} is no multiple of parameter_sync_step={steps}", "change one of them")
        )
    generated = run.get("data.gen_batch_size")
    is_one_by_one = run.trainer_mode != "sync" or run.get("algorithm.filter_groups.enable")
    if generated and not is_one_by_one and size % generated:
        findings.append(
            fail(f"data.train_batch_size={size} is no multiple of data.gen_batch_size={generated}", "unset the latter")
        )
    return findings


def _check_ranks(run: PlannedRun) -> list[Finding]:
    findings, n = [], int(run.number(f"{_ROLLOUT}.n", 1))
    server = int(run.number(f"{_ROLLOUT}.tensor_model_parallel_size", 1)) * int(
        run.number(f"{_ROLLOUT}.data_parallel_size", 1) * run.number(f"{_ROLLOUT}.pipeline_model_parallel_size", 1)
    )
    if run.get("actor_rollout_ref.hybrid_engine", True) and run.num_gpus % server:
        findings.append(
            fail(
                f"{run.num_gpus} GPUs cannot be shared by servers of {server} each "
                f"({_ROLLOUT}.tensor_model_parallel_size x data_parallel_size x pipeline_model_parallel_size)",
                "choose sizes that divide trainer.nnodes x trainer.n_gpus_per_node",
            )
        )
    ranks = data_parallel(run)
    sections = [_ACTOR] + (["critic"] if has_critic(run) else [])
    if ranks is None:
        return findings
    for section in sections:
        mini = int(run.number(f"{section}.ppo_mini_batch_size", 1))
        if mini * n % ranks:
            findings.append(
                fail(
                    f"a mini-batch of {section}.ppo_mini_batch_size={mini} x rollout.n={n} samples cannot be shared "
                    f"by {ranks} data-parallel ranks",
                    f"choose a ppo_mini_batch_size that makes {mini * n} a multiple of {ranks}",
                )
            )
    return findings


def _check_micro_batches(run: PlannedRun) -> list[Finding]:
    ranks, n = data_parallel(run), int(run.number(f"{_ROLLOUT}.n", 1))
    if ranks is None:
        return []
    if run.get(f"{_ACTOR}.use_dynamic_bsz") != run.get(f"{_ROLLOUT}.log_prob_use_dynamic_bsz"):
        return [
            fail(
                f"{_ACTOR}.use_dynamic_bsz and {_ROLLOUT}.log_prob_use_dynamic_bsz differ",
                "do not set the latter: it follows the former",
            )
        ]
    if run.get(f"{_ACTOR}.use_dynamic_bsz"):
        return _check_token_budgets(run)
    findings = []
    mini = int(run.number(f"{_ACTOR}.ppo_mini_batch_size", 1)) * n // ranks
    micro = run.get(f"{_ACTOR}.ppo_micro_batch_size_per_gpu")
    if micro and mini % micro:
        findings.append(
            fail(
                f"a rank's {mini} samples of a mini-batch are no multiple of "
                f"{_ACTOR}.ppo_micro_batch_size_per_gpu={micro}",
                "choose one that divides it, or set use_dynamic_bsz=true",
            )
        )
    batch = count_samples(run) // ranks
    infer = run.get(f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu")
    if infer and batch % infer:
        findings.append(
            fail(
                f"a rank's {batch} samples of a batch are no multiple of "
                f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu={infer}",
                "choose one that divides it, or set use_dynamic_bsz=true",
            )
        )
    return findings


def _check_token_budgets(run: PlannedRun) -> list[Finding]:
    total = run.number(f"{_ROLLOUT}.prompt_length") + run.number(f"{_ROLLOUT}.response_length")
    budgets = {
        f"{_ACTOR}.ppo_max_token_len_per_gpu": sequence_parallel(run),
        f"{_ROLLOUT}.log_prob_max_token_len_per_gpu": sequence_parallel(run),
    }
    return [
        fail(
            f"a sequence may have {total} tokens and {key}={run.get(key)} (x {spread} ranks of a sequence): the first "
            "sequence of that length ends the run",
            f"set it to at least {math.ceil(total / spread)}",
        )
        for key, spread in budgets.items()
        if run.get(key) is not None and run.number(key) * spread < total
    ]


def _check_separate_async(run: PlannedRun) -> list[Finding]:
    if run.trainer_mode != "separate_async":
        return []
    size, mini = run.number("data.train_batch_size", 1), run.number(f"{_ACTOR}.ppo_mini_batch_size", 1)
    steps, findings = run.parameter_sync_step, []
    if size != steps * mini:
        findings.append(
            fail(
                f"separate_async needs data.train_batch_size = parameter_sync_step x ppo_mini_batch_size, got {size} "
                f"and {steps} x {mini}",
                f"set data.train_batch_size={steps * mini}",
            )
        )
    for key in ("nnodes", "n_gpus_per_node"):
        if run.number(f"{_ROLLOUT}.{key}", 0) <= 0:
            findings.append(fail(f"separate_async needs {_ROLLOUT}.{key} above 0", "give the rollout its own GPUs"))
    if run.get(f"{_ROLLOUT}.checkpoint_engine.backend") == "naive":
        findings.append(
            fail(
                f"separate_async cannot push weights with {_ROLLOUT}.checkpoint_engine.backend=naive",
                "set nccl, nixl or mooncake; on a CPU object_store",
            )
        )
    return findings


def _check_padding(run: PlannedRun) -> list[Finding]:
    """Returns the padding that verl adds to a batch."""
    samples, padded = count_samples(run), padded_samples(run)
    if padded == samples:
        return []
    size = int(run.number("data.train_batch_size", 1)) // run.parameter_sync_step
    mini = int(run.number(f"{_ACTOR}.ppo_mini_batch_size", 1))
    return [
        warn(
            f"{samples} samples are padded to {padded}: {size} prompts an update are no multiple of "
            f"{_ACTOR}.ppo_mini_batch_size={mini}; part of the compute is wasted on padding, and the last update of a "
            "step has fewer samples",
            "choose a ppo_mini_batch_size that divides the prompts",
        )
    ]
