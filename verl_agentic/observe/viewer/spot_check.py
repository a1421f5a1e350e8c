"""Trajectories for a human check: random ones and suspicious ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

pc: Any = pyarrow.compute  # makes its functions when it is imported: checkers do not see them

_FEW_TOKENS = 0.25
"""Share of the median number of model tokens below which a high reward is suspicious."""
_FAR = 4.0
"""Maximum distance of a reward from the median for its acc, in deviations (1.4826 times the median absolute
deviation)."""
_FAR_AT_LEAST = 0.1
"""Minimum distance as a share of the range of rewards."""
_REPEATS = 3
"""Number of equal calls in one trajectory that is suspicious."""
_READ_FOR_CALLS = 500
"""Number of trajectories whose calls are read: those with the most calls."""


def spot_check(
    table: pa.Table, record: Callable[[int], Mapping[str, Any]], *, count: int, seed: int
) -> dict[int, list[str]]:
    """Returns lines of the summaries -> the reason of their selection: `count` random and `count` suspicious ones.

    Suspicious ones come from every kind in turn. There may be fewer than `count`. The same seed chooses the same lines.

    Args:
        table: summaries of a run; only the last rows of the policy's sessions are used.
        record: line -> its record.
        count: of random ones, and of suspicious ones.
        seed: of the choice.
    """
    chance = random.Random(seed)
    lines = _list_candidates(table)
    chosen = {row: ["random"] for row in chance.sample(lines, min(count, len(lines)))}
    kinds = {kind: [row for row in rows if row not in chosen] for kind, rows in suspicious(table, record).items()}
    why = {row: [name for name, rows in kinds.items() if row in set(rows)] for rows in kinds.values() for row in rows}
    queues = [chance.sample(rows, len(rows)) for rows in kinds.values()]
    suspicious_rows: list[int] = []
    while any(queues) and len(suspicious_rows) < count:
        for queue in queues:
            while queue and queue[-1] in suspicious_rows:
                queue.pop()
            if queue and len(suspicious_rows) < count:
                suspicious_rows.append(queue.pop())
    return {**chosen, **{row: [f"suspicious: {name}" for name in why[row]] for row in suspicious_rows}}


def suspicious(table: pa.Table, record: Callable[[int], Mapping[str, Any]]) -> dict[str, list[int]]:
    """Returns kind -> lines of the summaries; see docs/viewer.md for what each kind means."""
    rows = np.asarray(_list_candidates(table), dtype=np.int64)
    if not len(rows):
        return {}
    columns = table.take(pa.array(rows))
    reward, acc = (_to_floats(columns[name]) for name in ("reward", "acc"))
    tokens = _to_floats(columns["num_model_tokens"])
    is_void = np.asarray(pc.fill_null(columns["is_void"], False))
    reward[is_void], acc[is_void], tokens[is_void] = np.nan, np.nan, np.nan
    flags_by_kind = {
        "breach of the audit": np.asarray(pc.not_equal(columns["breach"], "")),
        "void": is_void,
        "attempt at reward hacking": np.asarray(
            pc.fill_null(pc.greater(pc.list_value_length(columns["hacking"]), 0), False)
        ),
        "high reward, few tokens": _find_short_paid(reward, tokens),
        "reward far from acc": _find_far_rewards(reward, acc),
    }
    kinds = {kind: [int(row) for row in rows[flags]] for kind, flags in flags_by_kind.items()}
    calls = np.asarray(columns["num_calls"])
    busiest = sorted(zip(calls.tolist(), rows.tolist(), strict=True), reverse=True)[:_READ_FOR_CALLS]
    kinds["repeated calls"] = [
        row for number, row in busiest if number >= _REPEATS and _has_repeated_calls(record(row))
    ]
    return kinds


def _list_candidates(table: pa.Table) -> list[int]:
    counted = pc.and_(pc.equal(table["place"], "last"), pc.equal(table["role"], "policy"))
    return np.flatnonzero(np.asarray(pc.fill_null(counted, False))).tolist()


def _find_short_paid(reward: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    if np.isnan(reward).all() or np.isnan(tokens).all():
        return np.zeros(len(reward), dtype=bool)
    return (reward > np.nanmean(reward)) & (tokens < _FEW_TOKENS * np.nanmedian(tokens))


def _find_far_rewards(reward: np.ndarray, acc: np.ndarray) -> np.ndarray:
    """Returns `[rows]` whether a reward is far from the median reward of the trajectories with that acc."""
    is_known = np.isfinite(reward) & np.isfinite(acc)
    far = np.zeros(len(reward), dtype=bool)
    if not is_known.any():
        return far
    expected = np.full(len(reward), np.nan)
    for value in np.unique(acc[is_known]):
        same = is_known & (acc == value)
        expected[same] = np.median(reward[same])
    deviation = np.abs(reward - expected)
    usual = 1.4826 * np.median(deviation[is_known])
    far[is_known] = deviation[is_known] > max(_FAR * usual, _FAR_AT_LEAST * float(np.ptp(reward[is_known])), 1e-9)
    return far


def _has_repeated_calls(record: Mapping[str, Any]) -> bool:
    calls = [(call["name"], call["arguments"]) for turn in record["turns"] or () for call in turn["calls"] or ()]
    return any(calls.count(call) >= _REPEATS for call in set(calls))


def _to_floats(column: pa.ChunkedArray) -> np.ndarray:
    return np.array(pc.cast(column, pa.float64()).to_numpy(), dtype=np.float64)
