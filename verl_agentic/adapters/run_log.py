"""What the trainer adds to a run's log, the audit of every batch, and the health of the run.

`rollout.custom.agentic.log.dir` names the folder; `audit` and `health` beside it say what is checked and what happens.
Patches verl's V1 trainer, so that all of its modes, and estimators and loops of any kind, are seen.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from verl_agentic.adapters.session_rows import split_key
from verl_agentic.adapters.step_time import LOG_S
from verl_agentic.adapters.stored_columns import stored_columns
from verl_agentic.agent_loops.settings import to_audit
from verl_agentic.agent_loops.text_audit import TEXT_MISMATCH
from verl_agentic.algorithms import mask_audit
from verl_agentic.algorithms.handover import told_to_metrics
from verl_agentic.algorithms.mask_audit import Breach
from verl_agentic.diagnostics.finding import Finding
from verl_agentic.diagnostics.health import HealthMonitor, HealthSettings
from verl_agentic.errors import AuditError, HealthError
from verl_agentic.rewards.scored import PLACE
from verl_agentic.trajectory_log.lines import Lines
from verl_agentic.trajectory_log.metrics import MetricsLog, read_metrics
from verl_agentic.trajectory_log.options import LogOptions
from verl_agentic.trajectory_log.run_files import write_config, write_tokenizer
from verl_agentic.trajectory_log.writer import log_writer

logger = logging.getLogger(__name__)
_SECTION = "actor_rollout_ref.rollout.custom.agentic"
_BEFORE = ("response_mask", "rm_scores", "rollout_log_probs", "old_log_probs", "extra_fields")
_AFTER = ("response_mask", "rm_scores", "advantages", "returns", "values", "old_log_probs", "entropy")
_SHOWN = 3


class Watch:
    """What watches over one trainer."""

    def __init__(self, config: Any) -> None:
        """Reads the section.

        Raises:
            ConfigError: an unknown key, or a value out of range.
        """
        section = OmegaConf.select(config, _SECTION) or {}
        plain: dict[str, Any] = cast("Any", OmegaConf.to_container(section, resolve=True)) if section else {}
        self.options = LogOptions.from_mapping(plain.get("log") or {}, section=f"{_SECTION}.log")
        self.audit = to_audit(plain["audit"], section=_SECTION) if plain.get("audit") is not None else None
        settings = HealthSettings.from_mapping(plain.get("health"))
        self.health = HealthMonitor(settings)
        folder = self.options.dir
        self.metrics = None if folder is None else MetricsLog(folder)
        self._findings = None if folder is None else Lines(Path(folder) / "health.jsonl")
        self._is_resumed = False
        self.has_varying_groups = OmegaConf.select(config, "data.curriculum.group_size") is not None

    def remember(self, *, before: int) -> None:
        """Lets alarms know, once, what a run that is resumed logged of its steps before this one."""
        if not self._is_resumed and self.options.dir is not None:
            for logged in read_metrics(self.options.dir):
                if 0 < logged["step"] < before:
                    self.health.observe(logged["step"], logged)
        self._is_resumed = True

    def find(self, finding: Finding) -> None:
        """Keeps and tells a finding."""
        if self._findings is not None:
            self._findings.append({**finding.to_dict(), "time": time.time()})
        logger.log(logging.INFO if finding.level == "log" else logging.WARNING, "%s", finding)


@contextlib.contextmanager
def _timed(trainer: Any, where: str) -> Iterator[None]:
    """Counts what the block takes to what the log and the audit cost within a timer of verl's."""
    started = time.perf_counter()
    try:
        yield
    finally:
        spent = vars(trainer).setdefault(LOG_S, {})
        spent[where] = spent.get(where, 0.0) + time.perf_counter() - started


def watch_of(trainer: Any) -> Watch:
    """Returns what watches over a trainer; one that is new begins to."""
    if "_agentic_watch" not in vars(trainer):
        trainer._agentic_watch = Watch(trainer.config)
    return trainer._agentic_watch


def _fit(original: Any) -> Any:
    @functools.wraps(original)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        folder = watch_of(self).options.dir
        if folder is not None:
            write_config(Path(folder), OmegaConf.to_container(self.config, resolve=True))
            write_tokenizer(Path(folder), self.tokenizer)
        return original(self, *args, **kwargs)

    return fit


def _compute_advantage(original: Any) -> Any:
    @functools.wraps(original)
    def compute(self: Any, batch: Any, metrics: dict[str, Any]) -> Any:
        watch = watch_of(self)
        if watch.audit != "off":
            with _timed(self, "adv"):
                audit_batch(self, batch, metrics)
        with told_to_metrics(metrics, lambda: stored_columns(batch)):
            batch = original(self, batch, metrics)
        if watch.options.dir is not None:
            with _timed(self, "adv"):
                log_updates(watch.options, batch, step=self.global_steps)
        return batch

    return compute


def _compute_metrics(original: Any) -> Any:
    @functools.wraps(original)
    def compute(self: Any, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        original(self, batch, metrics, *args, **kwargs)
        watch = watch_of(self)
        watch.remember(before=self.global_steps)
        findings = watch.health.observe(self.global_steps, metrics)
        metrics.update(watch.health.metrics())
        for finding in findings:
            watch.find(finding)
        if watch.metrics is not None:
            watch.metrics.append(self.global_steps, metrics)
        if any(finding.level == "stop" for finding in findings):
            _stop(self, metrics, findings)

    return compute


def _validate(original: Any) -> Any:
    @functools.wraps(original)
    def validate(self: Any) -> dict[str, float]:
        found = original(self)
        watch = watch_of(self)
        if watch.metrics is not None:
            watch.metrics.append(self.global_steps, found)  # those of the step follow, with these in them
        return found

    return validate


def _stop(trainer: Any, metrics: dict[str, Any], findings: Sequence[Finding]) -> None:
    """Saves a checkpoint and ends the run."""
    trainer.logger.log(data=metrics, step=trainer.global_steps)
    trainer._save_checkpoint()
    told = "; ".join(f"{finding.name}: {finding.message}" for finding in findings if finding.level == "stop")
    raise HealthError(
        f"the run is not well at step {trainer.global_steps}, got {told}; a checkpoint was saved in "
        f"{trainer.config.trainer.default_local_dir}: mend the cause and resume, or set "
        f"{_SECTION}.health.actions.<alarm> to warn"
    )


# The audit.


def audit_batch(trainer: Any, batch: Any, metrics: dict[str, Any]) -> None:
    """Looks at a batch before it is trained on.

    Args:
        trainer: verl's, at a step.
        batch: verl's name for the rows.
        metrics: those of the step; takes what was seen.

    Raises:
        AuditError: something is wrong, and the run is to stop then.
    """
    watch = watch_of(trainer)
    rows = [row for row, tag in enumerate(batch.tags) if not tag.get("is_padding", False)]
    keys = [batch.keys[row] for row in rows]
    fetched = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=list(_BEFORE))
    columns = {name: _padded(fetched[name]) for name in _BEFORE[:-1] if name in fetched}
    lengths_B = torch.tensor([len(row) for row in fetched["response_mask"].unbind()])
    extras = [_plain(extra) for extra in fetched["extra_fields"]] if "extra_fields" in fetched else [{}] * len(keys)
    mask_BT = columns["response_mask"]
    breaches = mask_audit.audit(
        mask_BT=mask_BT,
        lengths_B=lengths_B,
        rewards_BT=columns["rm_scores"],
        observed_BT=_observed(extras, mask_BT),
        rollout_log_probs_BT=columns.get("rollout_log_probs"),
        old_log_probs_BT=columns.get("old_log_probs"),
    )
    breaches += [
        Breach(name=TEXT_MISMATCH, row=row, start=0, end=0, message=extra["breach"])
        for row, extra in enumerate(extras)
        if extra.get("breach")
    ]
    uids, sessions, _ = zip(*map(split_key, keys), strict=True)
    sizes = _group_sizes(trainer, watch, uids, sessions)
    breaches += mask_audit.incomplete_groups(uids, [int(session) for session in sessions], expected=sizes)
    metrics.update({f"audit/{name}": value for name, value in mask_audit.mask_coverage(mask_BT, lengths_B).items()})
    metrics["audit/breaches"] = float(len(breaches))
    if breaches:
        is_ours = all(PLACE in extra for extra in extras)
        _tell(watch, breaches, keys, step=trainer.global_steps, action=watch.audit or ("stop" if is_ours else "warn"))


def _tell(watch: Watch, breaches: Sequence[Breach], keys: Sequence[str], *, step: int, action: str) -> None:
    """Keeps breaches, one finding for each of their kinds, and stops the run where it is to stop."""
    by_name: dict[str, list[Breach]] = {}
    for breach in breaches:
        by_name.setdefault(breach.name, []).append(breach)
    told = []
    for name, found in by_name.items():
        first = "; ".join(f"row {keys[breach.row]}: {breach.message}" for breach in found[:_SHOWN])
        message = f"{len(found)} of {len(keys)} rows: {first}"
        finding = Finding(
            step=step,
            name=f"audit/{name}",
            level=cast("Any", action),
            message=message,
            evidence={"rows": float(len(found)), "first_row": keys[found[0].row]},
            advice=f"mend the agent loop that made the row, or set {_SECTION}.audit=warn",
        )
        watch.find(finding)
        told.append(f"{name}: {message}")
    if action == "stop":
        raise AuditError(
            f"step {step} would train on what the policy did not do, got {'; '.join(told)}; mend the agent loop that "
            f"made these rows, or set {_SECTION}.audit=warn to go on"
        )


def _observed(extras: Sequence[Mapping[str, Any]], mask_BT: torch.Tensor) -> torch.Tensor:
    """Returns `[B, T]` bool: tokens that the policy did not sample, by the segments of the rows that have any."""
    observed = np.zeros(tuple(mask_BT.shape), dtype=bool)
    for row, extra in enumerate(extras):
        for start, end, kind, _ in extra.get("segments") or ():
            if kind != "model":
                observed[row, start:end] = True
    return torch.from_numpy(observed)


def _group_sizes(trainer: Any, watch: Watch, uids: Sequence[str], sessions: Sequence[str]) -> int | dict[str, int]:
    if not watch.has_varying_groups:
        return int(trainer.config.actor_rollout_ref.rollout.n)
    sizes: dict[str, int] = {}
    for uid, session in zip(uids, sessions, strict=True):
        sizes[uid] = max(sizes.get(uid, 0), int(session) + 1)
    return sizes


# The log.


def log_updates(options: LogOptions, batch: Any, *, step: int) -> None:
    """Has a record of every row of a batch written: what the trainer made of it.

    Args:
        options: of the run's log.
        batch: verl's name for the rows; their advantages are stored.
        step: whose update they are in.
    """
    rows = [row for row, tag in enumerate(batch.tags) if not tag.get("is_padding", False)]
    keys = [batch.keys[row] for row in rows]
    fetched = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=list(_AFTER))
    columns = {name: fetched[name].unbind() for name in _AFTER if name in fetched}
    has_critic = "values" in columns

    def records() -> list[dict[str, Any]]:
        return [
            _update(key, {n: rows[i] for n, rows in columns.items()}, step, has_critic) for i, key in enumerate(keys)
        ]

    log_writer("updates", options).append(records)


def _update(key: str, row: Mapping[str, torch.Tensor], step: int, has_critic: bool) -> dict[str, Any]:
    uid, session, index = split_key(key)
    mask = row["response_mask"].bool()
    count = int(mask.sum())
    named = {"advantages": "advantages", "old_log_probs": "old_log_probs", "entropies": "entropy"}
    named |= {"returns": "returns", "values": "values"} if has_critic else {}
    arrays = {ours: row[theirs].float().numpy() for ours, theirs in named.items() if theirs in row}
    return {
        "uid": uid,
        "session": int(session),
        "index": index,
        "trained_step": step,
        "paid": float(row["rm_scores"].sum()),
        "mean_advantage": float((row["advantages"].float() * mask).sum()) / max(count, 1),
        "num_trained_tokens": count,
        **arrays,
    }


def _padded(nested: torch.Tensor) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(list(nested.unbind()), batch_first=True)


def _plain(value: Any) -> dict[str, Any]:
    return getattr(value, "data", value) or {}


PPOTrainer.fit = _fit(PPOTrainer.fit)
PPOTrainer._compute_advantage = _compute_advantage(PPOTrainer._compute_advantage)
PPOTrainer._compute_metrics = _compute_metrics(PPOTrainer._compute_metrics)
PPOTrainer._validate = _validate(PPOTrainer._validate)
