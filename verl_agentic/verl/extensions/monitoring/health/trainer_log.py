"""Patches verl: the trainer writes a run's log, audits every batch, and watches the health of the run.

`agentic.log.dir` names the folder; `audit` and `health` configure checks and actions. Wraps `fit`,
`_compute_advantage`, `_compute_metrics`, `_save_checkpoint` and `_validate` of `PPOTrainer`, so all modes of the V1
trainer and all estimators and loops are covered. Wraps `tqdm` of its module: the live view has a progress bar.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from verl.trainer.ppo.v1 import trainer_base
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from verl_agentic.credit.trainer_context import metrics_only_context
from verl_agentic.log.lines import Lines
from verl_agentic.log.log_options import LogOptions
from verl_agentic.log.run_files import ENDED, write_config, write_tokenizer
from verl_agentic.log.writer import log_writer
from verl_agentic.observe.health.monitor import ROLLED_BACK_TO
from verl_agentic.verl.batches.batch_columns import stored_columns
from verl_agentic.verl.batches.row_store import PLAYED_UID, split_key
from verl_agentic.verl.extensions.monitoring.console_line import short_console
from verl_agentic.verl.extensions.monitoring.health.batch_audit import audit_batch
from verl_agentic.verl.extensions.monitoring.health.health_actions import act, target_of_rollback
from verl_agentic.verl.extensions.monitoring.health.health_watch import watch_of
from verl_agentic.verl.extensions.monitoring.live_console import has_live_view
from verl_agentic.verl.log_and_continue import log_and_continue
from verl_agentic.verl.object_state import state_of
from verl_agentic.verl.patching import wrap

logger = logging.getLogger(__name__)
_COLUMNS = ("response_mask", "rm_scores", "advantages", "returns", "values", "old_log_probs", "entropy")


@contextlib.contextmanager
def _time_block(trainer: Any, timer: str) -> Iterator[None]:
    """Adds the block's time to the cost of log and audit within one of verl's timers."""
    started = time.perf_counter()
    try:
        yield
    finally:
        state = state_of(trainer)
        spent = state.log_s = state.log_s or {}
        spent[timer] = spent.get(timer, 0.0) + time.perf_counter() - started


@wrap(PPOTrainer, "fit")
def _log_run(fit: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    options = watch_of(self).options
    folder = options.dir
    if folder is None:
        return fit(self, *args, **kwargs)
    write_config(Path(folder), OmegaConf.to_container(self.config, resolve=True))
    write_tokenizer(Path(folder), self.tokenizer)
    ends = Lines(Path(folder) / ENDED)
    num_steps = self.total_training_steps
    ends.append({"step": self.global_steps, "num_steps": num_steps, "time": time.time(), "ended": False})
    with contextlib.nullcontext() if options.console == "all" else short_console(num_steps=num_steps):
        fit_result = fit(self, *args, **kwargs)
    ends.append({"step": self.global_steps, "time": time.time(), "ended": True})
    print(f"Every trajectory of this run: verl-agentic view {folder}", flush=True)
    return fit_result


@wrap(trainer_base, "tqdm")
def _hide_bar(tqdm: Any, *args: Any, **kwargs: Any) -> Any:
    return tqdm(*args, disable=has_live_view(), **kwargs)


@wrap(PPOTrainer, "_compute_advantage")
def _log_advantages(compute: Any, self: Any, batch: Any, metrics: dict[str, Any]) -> Any:
    watch = watch_of(self)
    if watch.audit != "off":
        with _time_block(self, "adv"):
            audit_batch(self, batch, metrics)
    with metrics_only_context(metrics, lambda: stored_columns(batch)):
        batch = compute(self, batch, metrics)
    if watch.options.dir is not None:
        with _time_block(self, "adv"), log_and_continue("the log of updates"):
            log_updates(watch.options, batch, step=self.global_steps)
    return batch


@wrap(PPOTrainer, "_compute_metrics")
def _log_metrics(compute: Any, self: Any, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> None:
    compute(self, batch, metrics, *args, **kwargs)
    watch = watch_of(self)
    if watch.drift is not None:
        with log_and_continue("the drift of the judge"):
            metrics.update(watch.drift.measure(self.global_steps))
    watch.remember(before=self.global_steps)
    findings = watch.health.observe(self.global_steps, metrics)
    metrics.update(watch.health.metrics())
    for finding in findings:
        watch.find(finding)
    if (step := target_of_rollback(watch, findings)) is not None:
        metrics[ROLLED_BACK_TO] = step
    if watch.metrics is not None:
        watch.metrics.append(self.global_steps, metrics)
    act(self, watch, metrics, findings)
    watch.keep_healthy()


@wrap(PPOTrainer, "_save_checkpoint")
def _note_checkpoint(save: Any, self: Any) -> None:
    save(self)
    watch_of(self).checkpoints.note(self.global_steps, root=Path(self.config.trainer.default_local_dir))


@wrap(PPOTrainer, "_validate")
def _log_validation(validate: Any, self: Any) -> dict[str, float]:
    metrics = validate(self)
    watch = watch_of(self)
    if watch.metrics is not None:
        watch.metrics.append(self.global_steps, metrics)  # those of the step follow, and are put together with them
    if self.global_steps == 0:
        watch.health.observe(0, metrics)  # what training begins with
    return metrics


def log_updates(options: LogOptions, batch: Any, *, step: int) -> None:
    """Writes a record of the training results of every row of a batch.

    Args:
        batch: verl's reference to the rows, with stored advantages.
    """
    rows = [row for row, tag in enumerate(batch.tags) if not tag.get("is_padding", False)]
    keys = [batch.keys[row] for row in rows]
    fetched = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=list(_COLUMNS))
    columns = {name: fetched[name].unbind() for name in _COLUMNS if name in fetched}
    has_critic = "values" in columns
    # Replayed rows have a new uid in the queue, and the old one in the log.
    uids = [batch.tags[row].get(PLAYED_UID) or split_key(batch.keys[row])[0] for row in rows]

    def records() -> list[dict[str, Any]]:
        per_row = [{name: column[row] for name, column in columns.items()} for row in range(len(keys))]
        updates = [_make_update(key, row, step, has_critic) for key, row in zip(keys, per_row, strict=True)]
        return [{**update, "uid": uid} for uid, update in zip(uids, updates, strict=True)]

    log_writer("updates", options).append(records)


def _make_update(key: str, row: Mapping[str, torch.Tensor], step: int, has_critic: bool) -> dict[str, Any]:
    _, session, index = split_key(key)
    mask = row["response_mask"].bool()
    count = int(mask.sum())
    named = {"advantages": "advantages", "old_log_probs": "old_log_probs", "entropies": "entropy"}
    named |= {"returns": "returns", "values": "values"} if has_critic else {}
    arrays = {ours: row[theirs].float().numpy() for ours, theirs in named.items() if theirs in row}
    return {
        "session": int(session),
        "index": index,
        "trained_step": step,
        "paid": float(row["rm_scores"].sum()),
        "mean_advantage": float((row["advantages"].float() * mask).sum()) / max(count, 1),
        "num_trained_tokens": count,
        **arrays,
    }
