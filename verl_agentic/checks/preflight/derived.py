"""Sizes derived from a configuration: rows and updates of a step, tokens, sandboxes, the longest wait."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from verl_agentic.base.errors import ConfigError
from verl_agentic.checks.preflight.episode_section import loop_settings
from verl_agentic.checks.preflight.planned_run import PlannedRun
from verl_agentic.checks.preflight.run_sizes import data_parallel, padded_samples, sequence_parallel, sizes_below_1

_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


@dataclass(frozen=True, kw_only=True)
class Number:
    """One derived number."""

    name: str
    value: float
    unit: str
    how: str
    """Its terms."""

    def to_dict(self) -> dict[str, str | float]:
        """Returns it as plain JSON values."""
        return asdict(self)


def derived_numbers(run: PlannedRun) -> list[Number]:
    """Returns the numbers of a training step; numbers that the configuration leaves open are missing."""
    if not isinstance(run.get("data.train_batch_size"), int) or sizes_below_1(run):
        return []
    return [*_iter_batch_numbers(run), *_iter_token_numbers(run), *_iter_episode_numbers(run), *_iter_time_numbers(run)]


def _iter_batch_numbers(run: PlannedRun) -> Iterator[Number]:
    prompts, n = int(run.number("data.train_batch_size")), int(run.number(f"{_ROLLOUT}.n", 1))
    yield Number(name="samples per step", value=prompts * n, unit="episodes", how=f"{prompts} prompts x {n}")
    steps, epochs = run.parameter_sync_step, int(run.number(f"{_ACTOR}.ppo_epochs", 1))
    mini = int(run.number(f"{_ACTOR}.ppo_mini_batch_size", 1))
    padded = padded_samples(run)
    yield Number(name="rows per update batch", value=padded, unit="rows",
                 how=f"{prompts // steps} prompts x {n}, filled up for mini-batches of {mini} x {n}; compaction and "
                 "sub-agents add rows")  # fmt: skip
    updates = steps * epochs * padded // (mini * n)
    how = f"{padded} rows / ({mini} x {n}) x {epochs} epochs" + (f" x {steps} batches" if steps > 1 else "")
    yield Number(name="optimiser updates per step", value=updates, unit="updates", how=how)
    if (total := run.total_steps) is not None and run.rows is not None:
        per_epoch = run.rows.count // prompts
        how = f"{run.rows.count} rows / {prompts} = {per_epoch} an epoch, trainer.total_epochs or total_training_steps"
        yield Number(name="steps", value=total, unit="steps", how=how)


def _iter_token_numbers(run: PlannedRun) -> Iterator[Number]:
    prompt, response = (int(run.number(f"{_ROLLOUT}.{name}_length")) for name in ("prompt", "response"))
    if run.get(f"{_ACTOR}.use_dynamic_bsz"):
        budget, spread = int(run.number(f"{_ACTOR}.ppo_max_token_len_per_gpu")), sequence_parallel(run)
        yield Number(name="tokens per GPU at most", value=budget, unit="tokens",
                     how=f"{_ACTOR}.ppo_max_token_len_per_gpu"
                     + (f", a sequence on {spread} GPUs" if spread > 1 else ""))  # fmt: skip
    elif micro := run.get(f"{_ACTOR}.ppo_micro_batch_size_per_gpu"):
        how = f"micro-batches of {micro} x ({prompt} + {response})"
        yield Number(name="tokens per GPU at most", value=micro * (prompt + response), unit="tokens", how=how)
    if (ranks := data_parallel(run)) is not None:
        max_tokens = math.ceil(padded_samples(run) / ranks) * (prompt + response)
        how = f"{padded_samples(run)} rows / {ranks} ranks x ({prompt} + {response})"
        yield Number(name="tokens per rank and update batch at most", value=max_tokens, unit="tokens", how=how)


def concurrent_episodes(run: PlannedRun) -> tuple[int, str]:
    """Returns how many episodes may run at the same time, with the calculation."""
    prompts, n = int(run.number("data.train_batch_size")), int(run.number(f"{_ROLLOUT}.n", 1))
    mode = run.trainer_mode
    if mode != "sync":
        ahead = 1 + run.number(f"trainer.v1.{mode}.num_warmup_batches", 1)
        return int(prompts * ahead) * n, f"{prompts} prompts x {n}, {ahead:g} batches ahead ({mode})"
    batches = 1
    if run.get("algorithm.filter_groups.enable"):
        batches = int(run.number("algorithm.filter_groups.max_inflight_gen_batches", 1))
    if run.get("trainer.v1.sampler.custom_sampler.path"):
        batches = int(run.number("trainer.v1.sampler.sampler_kwargs.max_inflight_batches", 1))
    in_flight = f" x {batches} batches in flight" if batches > 1 else ""
    return prompts * n * batches, f"{prompts} prompts x {n}{in_flight}"


def _iter_episode_numbers(run: PlannedRun) -> Iterator[Number]:
    episodes, how = concurrent_episodes(run)
    workers = int(run.number(f"{_ROLLOUT}.agent.num_workers", 1))
    peak_name = "sandboxes at the peak" if run.is_ours else "episodes at the peak"
    yield Number(name=peak_name, value=episodes, unit="environments",
                 how=f"{how}, on {workers} workers; environments that share a pool of sandboxes wait beyond its size; "
                 "validation runs data.val_batch_size or all its rows at once")  # fmt: skip
    servers = max(1, run.num_gpus // max(1, int(run.number(f"{_ROLLOUT}.tensor_model_parallel_size", 1))))
    slots = int(run.number(f"{_ROLLOUT}.max_num_seqs", 0)) * servers
    generating = min(episodes, slots or episodes)
    prompt, response = (int(run.number(f"{_ROLLOUT}.{name}_length")) for name in ("prompt", "response"))
    tokens = generating * (prompt + response)
    how = f"{generating} sequences at once (rollout.max_num_seqs x {servers} servers = {slots}) x ({prompt}+{response})"
    yield Number(name="KV cache tokens at the peak", value=tokens, unit="tokens", how=how)
    if run.model is not None and run.model.kv_bytes_per_token is not None:
        size = tokens * run.model.kv_bytes_per_token / servers / 2**30
        how = f"{run.model.kv_bytes_per_token} bytes a token in 16 bits, spread over {servers} servers"
        yield Number(name="KV cache per server at the peak", value=round(size, 2), unit="GiB", how=how)


def _iter_time_numbers(run: PlannedRun) -> Iterator[Number]:
    if not run.is_ours:
        return
    try:
        limits = loop_settings(run).limits
    except ConfigError:
        return
    turns = limits.start_timeout_s + 2 * limits.max_turns * limits.turn_timeout_s + limits.score_timeout_s
    attempts = turns * (1 + limits.max_retries)
    by_turns = f"(start {limits.start_timeout_s:g} s + {limits.max_turns} turns x 2 x {limits.turn_timeout_s:g} s + "
    by_turns += f"score {limits.score_timeout_s:g} s) x {1 + limits.max_retries} attempts = {attempts:g} s"
    # The last attempt may begin to score just before the deadline, and is closed after it.
    worst = min(attempts, limits.episode_timeout_s + limits.score_timeout_s) + limits.close_timeout_s
    how = f"the lesser of {by_turns} and episode_timeout_s {limits.episode_timeout_s:g} s + score, then close"
    yield Number(name="longest episode", value=worst, unit="s", how=how)
    filtered = run.get("algorithm.filter_groups.enable") or run.get("trainer.v1.sampler.custom_sampler.path")
    how = "all episodes of a step run in parallel, so one that hangs delays the step this long; then the "
    how += "update comes" + ("; filters run more groups, with one such wait for every refill" if filtered else "")
    yield Number(name="worst rollout of a step", value=worst, unit="s", how=how)
