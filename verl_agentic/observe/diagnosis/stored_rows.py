"""Checks of a stored training row, with the names of the audit in training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

import numpy as np

from verl_agentic.base.finding import (
    LAST_TOKEN_UNTRAINED,
    LOG_PROBS_MISALIGNED,
    OBSERVATION_TRAINED,
    REWARD_OFF_MASK,
    TEXT_MISMATCH,
)
from verl_agentic.log.secrets import WITHHELD

_COLUMNS = ("response_mask", "turn_ids", "rollout_log_probs", "token_rewards", "old_log_probs", "advantages")
_MAY_BE_EMPTY = {"turn_ids", "rollout_log_probs", "old_log_probs", "advantages"}
_SHIFTED_BY = 0.1
"""Log-probs are shifted if a neighbour's fit at least ten times better."""
_FAR = 0.1
"""Minimum mean distance of a shift, in nats; smaller ones are mismatch."""
_MIN_TOKENS = 8
_SHOWN = 40


def breaches(record: Mapping[str, Any], tokenizer: Any = None) -> Iterator[tuple[str, str]]:
    """Yields (name, description) of every breach in a row that is not void.

    Args:
        record: of `RunLog.record`.
        tokenizer: of the `tokenizers` library; None: texts are not compared.
    """
    if wrong := _find_wrong_lengths(record):
        yield LOG_PROBS_MISALIGNED, wrong
        return
    mask = np.asarray(record["response_mask"], dtype=bool)
    of_mask = list(_iter_mask_breaches(record, mask))
    yield from of_mask
    yield from _iter_reward_breaches(record, mask)
    if wrong := _find_log_prob_fault(record, mask):
        yield LOG_PROBS_MISALIGNED, wrong
    # Trained tokens of an observation are reported already.
    if tokenizer is not None and OBSERVATION_TRAINED not in dict(of_mask):
        yield from _iter_text_breaches(record, tokenizer)


def _find_wrong_lengths(record: Mapping[str, Any]) -> str:
    """Returns the columns whose length differs from the response; empty without one."""
    length = len(record["response_ids"])
    sizes = {name: len(record[name] if record.get(name) is not None else ()) for name in _COLUMNS}
    wrong = [
        f"{name} has {size}" for name, size in sizes.items() if size != length and (size or name not in _MAY_BE_EMPTY)
    ]
    return f"the response has {length} tokens, but {', '.join(wrong)}" if wrong else ""


def _iter_mask_breaches(record: Mapping[str, Any], mask: np.ndarray) -> Iterator[tuple[str, str]]:
    for segment in record.get("segments") or ():
        trained = int(mask[segment["start"] : segment["end"]].sum())
        if trained and segment["kind"] != "model":
            span = f"tokens {segment['start']}-{segment['end'] - 1} ({segment['kind']}, turn {segment['turn']})"
            yield OBSERVATION_TRAINED, f"{trained} of the {span} have mask 1"
    if mask.any() and not mask[-1]:
        tail = int(np.argmax(mask[::-1]))
        yield LAST_TOKEN_UNTRAINED, f"the last {tail} of {len(mask)} tokens have mask 0"


def _iter_reward_breaches(record: Mapping[str, Any], mask: np.ndarray) -> Iterator[tuple[str, str]]:
    rewards = np.asarray(record["token_rewards"], dtype=np.float64)
    off = np.flatnonzero((rewards != 0) & ~mask)
    if len(off):
        yield REWARD_OFF_MASK, f"reward {rewards[off].sum():.4g} is on token {off[0]}, which has mask 0"


def _find_log_prob_fault(record: Mapping[str, Any], mask: np.ndarray) -> str:
    """Returns the fault in the log-probs of rollout and trainer; empty without one."""
    log_probs = {}
    for name in ("rollout_log_probs", "old_log_probs"):
        if record.get(name) is not None and len(record[name]):
            log_probs[name] = np.asarray(record[name], dtype=np.float64)
    for name, values in log_probs.items():
        bad = np.flatnonzero(mask & ~(np.isfinite(values) & (values <= 1e-3)))
        if len(bad):
            return f"{name} of token {bad[0]} is {values[bad[0]]:g}, no log-prob"
    if len(log_probs) < 2 or mask.sum() < _MIN_TOKENS:
        return ""
    rollout, trainer = log_probs["rollout_log_probs"], log_probs["old_log_probs"]
    if not rollout[mask].any() and abs(trainer[mask]).mean() > _FAR:
        return f"rollout_log_probs are 0 on all {mask.sum()} trained tokens"
    distance = _measure_distance(rollout, trainer, mask, 0)
    for shift in (-1, 1):
        shifted_distance = _measure_distance(rollout, trainer, mask, shift)
        if distance > _FAR and shifted_distance < _SHIFTED_BY * distance:
            nats = f"{distance:.3g} nats from old_log_probs, else {shifted_distance:.3g}"
            return f"rollout_log_probs are shifted by {shift}: {nats}"
    return ""


def _measure_distance(rollout: np.ndarray, trainer: np.ndarray, mask: np.ndarray, shift: int) -> float:
    both = mask & np.roll(mask, shift)
    both[0 if shift > 0 else -1] &= shift == 0
    return float(abs(np.roll(rollout, shift) - trainer)[both].mean()) if both.any() else float("inf")


def _iter_text_breaches(record: Mapping[str, Any], tokenizer: Any) -> Iterator[tuple[str, str]]:
    """Checks that each run of trained tokens decodes to a part of the policy's text of its turn."""
    texts_by_turn = {turn["index"]: turn["text"] for turn in record.get("turns") or ()}
    for turn, start, end in _iter_runs(record):
        ids = list(record["response_ids"][start:end])
        if WITHHELD in ids:
            continue  # the turn's text has the secret's name instead
        decoded_text = tokenizer.decode(ids, skip_special_tokens=False)
        if turn in texts_by_turn and _strip_spaces(decoded_text) not in _strip_spaces(texts_by_turn[turn]):
            place = f"tokens {start}-{end - 1} of turn {turn} decode to {decoded_text[:_SHOWN]!r}"
            yield TEXT_MISMATCH, f"{place}, the policy wrote {texts_by_turn[turn][:_SHOWN]!r}"
            return


def _iter_runs(record: Mapping[str, Any]) -> Iterator[tuple[int, int, int]]:
    """Yields (turn, start, end) of neighbouring tokens with mask 1 of one turn."""
    start = 0
    for (mask, turn), tokens in groupby(zip(record["response_mask"], record["turn_ids"] or (), strict=False)):
        end = start + sum(1 for _ in tokens)
        if mask:
            yield turn, start, end
        start = end


def _strip_spaces(text: str) -> str:
    # Decoders differ in the spaces between pieces; a run may begin or end inside a character.
    return "".join(text.strip("\N{REPLACEMENT CHARACTER}").split())
