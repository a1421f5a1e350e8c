"""Keys of stored rows, by which the viewer finds them, and the tool calls in records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def key_of(row: Any) -> str:
    """Returns `split/step/uid/session/index` of a row or record."""
    return "/".join(str(row[name]) for name in ("split", "step", "uid", "session", "index"))


def keys_of(rows: Any, *, count: int = 2) -> tuple[str, ...]:
    """Returns the keys of the last few rows of a data frame."""
    return tuple(key_of(row) for _, row in rows.tail(count).iterrows())


def calls_of(records: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yields (record, call) of every tool call."""
    for record in records:
        for turn in record["turns"] or ():
            for call in turn["calls"] or ():
                yield record, call
