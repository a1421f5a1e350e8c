"""Rows as verl stores them in TransferQueue: their keys and columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import transfer_queue as tq

Columns = dict[str, list[Any]]
"""Name -> one value for each row."""


def split_key(key: str) -> tuple[str, str, int]:
    """Splits verl's key `{uid}_{session}_{index}`."""
    uid, session, index = key.rsplit("_", 2)
    return uid, session, int(index)


def session_of(key: str) -> tuple[str, str]:
    """Returns uid and session of a row's key."""
    return split_key(key)[:2]


def unwrap(value: Any) -> Any:
    """Returns what tensordict's `NonTensorData` holds; other values as they are."""
    return value if isinstance(value, torch.Tensor) else getattr(value, "data", value)


def read_columns(keys: Sequence[str], *, partition_id: str, names: Sequence[str] | None = None) -> Columns:
    """Returns columns of rows, in the order of the keys.

    Tensors are views of the batch that was read. A column that the rows lack is left out.

    Args:
        names: of the columns; None: all.
    """
    if not keys:
        return {}
    options = {} if names is None else {"select_fields": list(names)}
    fetched = tq.kv_batch_get(keys=list(keys), partition_id=partition_id, **options)
    return {str(name): [unwrap(value) for value in fetched[name]] for name in list(fetched.keys())}
