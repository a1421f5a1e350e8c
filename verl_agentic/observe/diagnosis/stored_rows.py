"""Checks of a stored training row, with the names and rules of the audit in training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from verl_agentic.base.finding import LOG_PROBS_MISALIGNED, OBSERVATION_TRAINED, TEXT_MISMATCH
from verl_agentic.base.types import Segment
from verl_agentic.log.row_audit import audit_row, describe_shift, find_foreign_text, find_wrong_lengths, measure_shifts

_MAX_RATIO = 0.1
"""Log-probs of one row are shifted if a neighbour's fit at least ten times better."""
_FAR = 0.1
"""Minimum mean distance of a shift, in nats; smaller ones are mismatch."""
_MIN_TOKENS = 6


def breaches(record: Mapping[str, Any], tokenizer: Any = None) -> Iterator[tuple[str, str]]:
    """Yields (name, description) of every breach in a row that is not void.

    Args:
        record: of `RunLog.record`.
        tokenizer: of the `tokenizers` library; None: texts are not compared.
    """
    if wrong := find_wrong_lengths(record):
        yield LOG_PROBS_MISALIGNED, wrong
        return
    mask = np.asarray(record["response_mask"], dtype=bool)
    log_probs = {
        name: np.asarray(record[name], dtype=np.float64)
        for name in ("rollout_log_probs", "old_log_probs")
        if record.get(name) is not None and len(record[name])
    }
    segments = [Segment(**segment) for segment in record.get("segments") or ()]
    rewards = np.asarray(record["token_rewards"], dtype=np.float64)
    by_rule = {breach.name: breach.message for breach in audit_row(mask, rewards, segments, log_probs)}
    yield from by_rule.items()
    if LOG_PROBS_MISALIGNED not in by_rule and len(log_probs) == 2 and (fault := _find_misfit(mask, **log_probs)):
        yield LOG_PROBS_MISALIGNED, fault
    # Trained tokens of an observation are reported already.
    if tokenizer is not None and record.get("turn_ids") and OBSERVATION_TRAINED not in by_rule:
        foreign = find_foreign_text(
            record["response_ids"],
            mask=record["response_mask"],
            turn_ids=record["turn_ids"],
            texts={turn["index"]: turn["text"] for turn in record.get("turns") or ()},
            decode=partial(tokenizer.decode, skip_special_tokens=False),
            normalise=_strip_spaces,
        )
        if foreign:
            yield TEXT_MISMATCH, foreign


def _find_misfit(mask: np.ndarray, rollout_log_probs: np.ndarray, old_log_probs: np.ndarray) -> str:
    """Returns why log-probs of rollout and trainer are not of the same tokens; empty if they may be."""
    if mask.sum() > _MIN_TOKENS and not rollout_log_probs[mask].any() and abs(old_log_probs[mask]).mean() > _FAR:
        return f"rollout_log_probs are 0 on all {mask.sum()} trained tokens"
    sums = measure_shifts(mask, rollout_log_probs, old_log_probs)
    return describe_shift(sums, min_tokens=_MIN_TOKENS, min_gap=_FAR, max_ratio=_MAX_RATIO)


def _strip_spaces(text: str) -> str:
    return "".join(text.split())  # decoders differ in the spaces between pieces
