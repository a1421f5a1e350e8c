"""Which rows of a batch are one session's, and which of them repeat its score."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import transfer_queue as tq

from verl_agentic.rewards.scored import PLACE

LAST_ROWS = "agentic_last_rows"
"""Attribute of a replay buffer: a step, and key -> `extra_fields` of the last rows of the episodes sampled in it."""

GROUP_SIZE = "agentic_group_size"
"""Tag of a row whose group a gate has cut: the sessions that are left."""
PLAYED_UID = "agentic_played_uid"
"""Tag of a row that is replayed: the uid under which it was played."""


def split_key(key: str) -> tuple[str, str, int]:
    """Returns uid, session and place in the session of a row that verl calls `{uid}_{session}_{index}`."""
    uid, session, index = key.rsplit("_", 2)
    return uid, session, int(index)


def last_rows(keys: Iterable[str]) -> dict[tuple[str, str], str]:
    """Returns uid and session -> the key of the session's last row."""
    last: dict[tuple[str, str], str] = {}
    for key in keys:
        uid, session, index = split_key(key)
        known = last.get((uid, session))
        if known is None or split_key(known)[2] < index:
            last[uid, session] = key
    return last


def extras_of(keys: Sequence[str], *, partition_id: str) -> dict[str, dict[str, Any]]:
    """Returns row -> its `extra_fields`; empty when the rows have none."""
    if not keys:
        return {}
    fetched = tq.kv_batch_get(keys=list(keys), partition_id=partition_id, select_fields=["extra_fields"])
    columns: list[Any] = list(fetched["extra_fields"]) if "extra_fields" in fetched else []
    return {key: getattr(column, "data", column) for key, column in zip(keys, columns, strict=bool(columns))}


def repeats(keys: Sequence[str], *, partition_id: str) -> list[bool]:
    """Tells of every row whether its rewards are a copy of those of its session's last row.

    verl copies the score of a session over all of its rows. Those of `env_agent` carry what was earned in them.
    """
    last = set(last_rows(keys).values())
    is_earlier = [key not in last for key in keys]
    if not any(is_earlier):
        return is_earlier
    fetched = tq.kv_batch_get(keys=list(keys), partition_id=partition_id, select_fields=["extra_fields"])
    extras = list(fetched["extra_fields"]) if "extra_fields" in fetched else [{}] * len(keys)
    return [
        earlier and PLACE not in (getattr(extra, "data", extra) or {})
        for earlier, extra in zip(is_earlier, extras, strict=True)
    ]
