"""The audit of a batch in verl's trainer, before training."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
import transfer_queue as tq

from verl_agentic.base.errors import AuditError, InfrastructureError
from verl_agentic.base.finding import GROUP_INCOMPLETE, LOG_PROBS_MISALIGNED, TEXT_MISMATCH
from verl_agentic.base.metric import Metric
from verl_agentic.base.types import Segment
from verl_agentic.log.row_audit import Breach, audit_row, describe_shift, measure_shifts
from verl_agentic.observe.health.health_finding import HealthFinding
from verl_agentic.rewards.verl_result import PLACE
from verl_agentic.verl.batches.row_store import GROUP_SIZE, split_key, unwrap
from verl_agentic.verl.extensions.monitoring.health.health_watch import HealthWatch, watch_of
from verl_agentic.verl.sections import AGENTIC

_LOG_PROBS = ("rollout_log_probs", "old_log_probs")
_COLUMNS = ("response_mask", "rm_scores", *_LOG_PROBS)
_MIN_TOKENS = 64
"""Minimum tokens of a batch in which a shift of log-probs is searched."""
_MIN_GAP = 0.05
"""Minimum mean difference of log-probs, in nats, for which a shift is searched."""
METRICS = (
    Metric(name="audit/trained_token_frac", unit="share", per="token", rows="response tokens"),
    Metric(name="audit/untrained_row_frac", unit="share", per="row", rows="rows without padding"),
    Metric(name="audit/breaches", unit="breaches", per="step", rows="rows without padding", join="sum"),
)
_SHOWN = 3
_DEFAULT_ADVICE = "fix the agent loop that made the row"
_ADVICE = {
    GROUP_INCOMPLETE: "a session has raised: the worker's log has the error, as a rule of the dataset's row; fix it",
    LOG_PROBS_MISALIGNED: "compare the tokens that rollout and trainer were given",
}


def audit_batch(trainer: Any, batch: Any, metrics: dict[str, Any]) -> None:
    """Audits a batch before training.

    Args:
        trainer: verl's, at a step.
        metrics: metrics of the step; receives the results.

    Raises:
        AuditError: there is a breach, and the audit is set to stop.
    """
    watch = watch_of(trainer)
    rows = [row for row, tag in enumerate(batch.tags) if not tag.get("is_padding", False)]
    keys = [batch.keys[row] for row in rows]
    fetched = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=[*_COLUMNS, "extra_fields"])
    extras = [unwrap(extra) for extra in fetched["extra_fields"]] if "extra_fields" in fetched else [{}] * len(keys)
    masks = [_to_numpy(row) != 0 for row in fetched["response_mask"].unbind()]
    num_tokens, num_trained = sum(map(len, masks)), [int(mask.sum()) for mask in masks]
    breaches = _audit_rows(masks, fetched, extras)
    uids, sessions, _ = zip(*map(split_key, keys), strict=True)
    sizes = _group_sizes(trainer, watch, uids, sessions)
    tags = [batch.tags[row] for row in rows]
    sizes |= {uid: tag[GROUP_SIZE] for uid, tag in zip(uids, tags, strict=True) if GROUP_SIZE in tag}
    breaches += incomplete_groups(uids, [int(session) for session in sessions], expected=sizes)
    metrics["audit/trained_token_frac"] = sum(num_trained) / max(num_tokens, 1)
    metrics["audit/untrained_row_frac"] = num_trained.count(0) / max(len(keys), 1)
    metrics["audit/breaches"] = float(len(breaches))
    action = watch.audit or ("stop" if all(PLACE in extra for extra in extras) else "warn")
    if action == "stop" and not any(num_trained):
        _refuse_void_batch(extras, step=trainer.global_steps)
    if breaches:
        _report_breaches(watch, breaches, keys, step=trainer.global_steps, action=action)


def _report_breaches(
    watch: HealthWatch, breaches: Sequence[tuple[int, Breach]], keys: Sequence[str], *, step: int, action: str
) -> None:
    """Stores breaches, one finding per kind, and stops the run if configured."""
    by_name: dict[str, list[tuple[str, str]]] = {}
    for row, breach in breaches:
        by_name.setdefault(breach.name, []).append((keys[row], breach.message))
    messages = []
    for name, of_kind in by_name.items():
        first = "; ".join(f"row {key}: {text}" for key, text in of_kind[:_SHOWN])
        message = f"{len(of_kind)} of {len(keys)} rows: {first}"
        finding = HealthFinding(
            step=step,
            check=f"audit/{name}",
            level=cast("Any", action),
            status="fail",
            found=message,
            evidence={"rows": float(len(of_kind)), "first_row": of_kind[0][0]},
            advice=f"{_ADVICE.get(name, _DEFAULT_ADVICE)}, or set {AGENTIC}.audit=warn",
        )
        watch.find(finding)
        messages.append(f"{name}: {message}; {_ADVICE.get(name, _DEFAULT_ADVICE)}")
    if action == "stop":
        raise AuditError(
            f"step {step} would train on what the policy did not do, got {'; '.join(messages)}; or set "
            f"{AGENTIC}.audit=warn to go on"
        )


def _refuse_void_batch(extras: Sequence[Mapping[str, Any]], *, step: int) -> None:
    """Raises a clear error for a batch without valid rows, before verl fails."""
    causes = Counter(extra.get("error") or extra.get("stop_reason") or "unknown" for extra in extras)
    (cause, count), num_others = causes.most_common(1)[0], len(causes) - 1
    others = f" and {num_others} other causes" if num_others else ""
    raise InfrastructureError(
        f"no row of step {step} can be trained on: all {len(extras)} are void, got {cause} ({count} times){others}; "
        "fix what fails around the policy, and resume"
    )


def _audit_rows(
    masks: Sequence[np.ndarray], fetched: Any, extras: Sequence[Mapping[str, Any]]
) -> list[tuple[int, Breach]]:
    """Returns the breaches of rows, with the row of each."""
    columns = {name: fetched[name].unbind() for name in _COLUMNS if name in fetched}
    breaches, shifts = [], np.zeros(4)
    for row, (mask, extra) in enumerate(zip(masks, extras, strict=True)):
        log_probs = {name: _to_numpy(columns[name][row]) for name in _LOG_PROBS if name in columns}
        segments = [Segment(*segment) for segment in extra.get("segments") or ()]
        rewards = _to_numpy(columns["rm_scores"][row])
        breaches += [(row, breach) for breach in audit_row(mask, rewards, segments, log_probs)]
        if len(log_probs) == len(_LOG_PROBS):
            shifts += measure_shifts(mask, *log_probs.values())
        if extra.get("breach"):
            breaches.append((row, Breach(name=TEXT_MISMATCH, message=extra["breach"])))
    if shift := describe_shift(shifts, min_tokens=_MIN_TOKENS, min_gap=_MIN_GAP, max_ratio=0.5):
        breaches.append((0, Breach(name=LOG_PROBS_MISALIGNED, message=shift)))
    return breaches


def incomplete_groups(
    uids: Sequence[str], sessions: Sequence[int], *, expected: Mapping[str, int]
) -> list[tuple[int, Breach]]:
    """Returns a breach for every group with missing sessions, with the group's first row.

    Args:
        uids: `[B]` group of every row.
        sessions: `[B]` number of the row's session in its group.
        expected: how many sessions each group has.
    """
    sessions_by_uid: dict[str, set[int]] = defaultdict(set)
    for uid, session in zip(uids, sessions, strict=True):
        sessions_by_uid[uid].add(session)
    breaches = []
    for uid, present in sessions_by_uid.items():
        size = expected[uid]
        if len(present) < size:
            missing = sorted(set(range(size)) - present)
            message = f"group {uid} has {len(present)} of {size} sessions; missing: {missing[:8]}"
            breaches.append((uids.index(uid), Breach(name=GROUP_INCOMPLETE, message=message)))
    return breaches


def _group_sizes(trainer: Any, watch: HealthWatch, uids: Sequence[str], sessions: Sequence[str]) -> dict[str, int]:
    """Returns the number of sessions of every group."""
    dataset = getattr(getattr(trainer, "train_dataset", None), "dataframe", None)
    is_told_by_rows = "__rollout_n__" in getattr(dataset, "column_names", ())
    if not watch.has_varying_groups and not is_told_by_rows:
        return dict.fromkeys(uids, int(trainer.config.actor_rollout_ref.rollout.n))
    sizes: dict[str, int] = {}
    for uid, session in zip(uids, sessions, strict=True):
        sizes[uid] = max(sizes.get(uid, 0), int(session) + 1)
    return sizes


def _to_numpy(row: torch.Tensor) -> np.ndarray:
    return (row.float() if row.is_floating_point() else row).cpu().numpy()
