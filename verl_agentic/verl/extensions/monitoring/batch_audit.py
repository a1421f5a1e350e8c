"""The audit of a batch in verl's trainer, before training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
import transfer_queue as tq

from verl_agentic.base.errors import AuditError, InfrastructureError
from verl_agentic.base.finding import GROUP_INCOMPLETE, LOG_PROBS_MISALIGNED, TEXT_MISMATCH
from verl_agentic.credit.batch_metrics import mask_audit
from verl_agentic.credit.batch_metrics.mask_audit import Breach
from verl_agentic.observe.health.health_finding import HealthFinding
from verl_agentic.rewards.verl_result import PLACE
from verl_agentic.verl.batches.batch_keys import GROUP_SIZE
from verl_agentic.verl.batches.row_store import split_key, unwrap
from verl_agentic.verl.extensions.monitoring.health_watch import HealthWatch, watch_of
from verl_agentic.verl.sections import AGENTIC

_COLUMNS = ("response_mask", "rm_scores", "rollout_log_probs", "old_log_probs")
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
    columns = {name: _pad_rows(fetched[name]) for name in _COLUMNS if name in fetched}
    lengths_B = torch.tensor([len(row) for row in fetched["response_mask"].unbind()])
    extras = [unwrap(extra) for extra in fetched["extra_fields"]] if "extra_fields" in fetched else [{}] * len(keys)
    mask_BT = columns["response_mask"]
    breaches = mask_audit.audit(
        mask_BT=mask_BT,
        lengths_B=lengths_B,
        rewards_BT=columns["rm_scores"],
        observed_BT=_mark_observed(extras, mask_BT),
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
    tags = [batch.tags[row] for row in rows]
    sizes |= {uid: tag[GROUP_SIZE] for uid, tag in zip(uids, tags, strict=True) if GROUP_SIZE in tag}
    breaches += mask_audit.incomplete_groups(uids, [int(session) for session in sessions], expected=sizes)
    metrics.update({f"audit/{name}": value for name, value in mask_audit.mask_coverage(mask_BT, lengths_B).items()})
    metrics["audit/breaches"] = float(len(breaches))
    action = watch.audit or ("stop" if all(PLACE in extra for extra in extras) else "warn")
    if action == "stop" and not bool(mask_BT.any()):
        _refuse_void_batch(extras, step=trainer.global_steps)
    if breaches:
        _report_breaches(watch, breaches, keys, step=trainer.global_steps, action=action)


def _report_breaches(
    watch: HealthWatch, breaches: Sequence[Breach], keys: Sequence[str], *, step: int, action: str
) -> None:
    """Stores breaches, one finding per kind, and stops the run if configured."""
    by_name: dict[str, list[Breach]] = {}
    for breach in breaches:
        by_name.setdefault(breach.name, []).append(breach)
    messages = []
    for name, breaches_of_kind in by_name.items():
        first = "; ".join(f"row {keys[breach.row]}: {breach.message}" for breach in breaches_of_kind[:_SHOWN])
        message = f"{len(breaches_of_kind)} of {len(keys)} rows: {first}"
        finding = HealthFinding(
            step=step,
            check=f"audit/{name}",
            level=cast("Any", action),
            status="fail",
            found=message,
            evidence={"rows": float(len(breaches_of_kind)), "first_row": keys[breaches_of_kind[0].row]},
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


def _mark_observed(extras: Sequence[Mapping[str, Any]], mask_BT: torch.Tensor) -> torch.Tensor:
    """Returns `[B, T]` bool: tokens that the policy did not sample, by the rows' segments."""
    observed = np.zeros(tuple(mask_BT.shape), dtype=bool)
    for row, extra in enumerate(extras):
        for start, end, kind, _ in extra.get("segments") or ():
            if kind != "model":
                observed[row, start:end] = True
    return torch.from_numpy(observed)


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


def _pad_rows(nested: torch.Tensor) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(list(nested.unbind()), batch_first=True)
