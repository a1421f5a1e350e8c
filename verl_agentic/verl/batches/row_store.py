"""Rows as verl stores them in TransferQueue: their keys, sessions and columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transfer_queue as tq

from verl_agentic.rewards.verl_result import AGENT, PLACE

GROUP_SIZE = "agentic_group_size"
"""Tag of a row whose group was reduced by a gate: the number of remaining sessions."""
PLAYED_UID = "agentic_played_uid"
"""Tag of a replayed row: its original uid."""
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


def is_padding(key: str) -> bool:
    """Returns whether a row only fills a batch: verl's `upsample_batch_to_divisible_size` names it."""
    return re.match(r"pad[0-9a-f]{32}_", key) is not None


def last_rows(keys: Iterable[str]) -> dict[tuple[str, str], str]:
    """Returns uid and session -> the key of the session's last row."""
    last: dict[tuple[str, str], str] = {}
    for key in keys:
        uid, session, index = split_key(key)
        last_key = last.get((uid, session))
        if last_key is None or split_key(last_key)[2] < index:
            last[uid, session] = key
    return last


def extras_of(keys: Sequence[str], *, partition_id: str) -> dict[str, dict[str, Any]]:
    """Returns row -> its `extra_fields`; empty if there are none."""
    extras = read_columns(keys, partition_id=partition_id, names=["extra_fields"]).get("extra_fields", [])
    return dict(zip(keys, extras, strict=bool(extras)))


def group_keys(keys: Sequence[str], parts: Mapping[str, torch.Tensor]) -> list[tuple[str, bool]]:
    """Returns group keys: rows of one prompt with the same guidance are comparable.

    Sessions with and without guidance have different prompts, so they are separate groups.

    Args:
        parts: numbers of their sessions, `[B]`; `guided` is 1 with guidance.
    """
    guided = parts.get("guided")
    are_guided = [False] * len(keys) if guided is None else [value == 1.0 for value in guided.tolist()]
    return [(split_key(key)[0], is_guided) for key, is_guided in zip(keys, are_guided, strict=True)]


@dataclass(frozen=True, kw_only=True)
class StoredRows:
    """Data that agent loops stored with the rows of a batch, in the order of its keys."""

    is_copy: list[bool]
    """Whether the row's rewards copy those of its session's last row. verl copies the score of a session to all of its
    rows; rows of `env_agent` have their own rewards."""
    is_side: list[bool] | None
    """Whether it is a sub-agent's row; None: unknown."""
    agents: tuple[str, ...]
    """Roles of the rows' agents; empty for the agent of an episode."""
    masks: list[torch.Tensor]
    """Masks of sampled tokens, `[R]` without padding."""

    def sampled(self, mask_BT: torch.Tensor) -> torch.Tensor:
        """Returns `[B, T]` bool: the remaining tokens `mask_BT` and sampled tokens that verl rejected."""
        sampled_BT = mask_BT.clone()
        for row, mask in enumerate(self.masks):
            sampled_BT[row, : len(mask)] |= mask[: mask_BT.shape[1]].to(mask_BT.device).bool()
        return sampled_BT


def stored_rows(keys: Sequence[str], *, partition_id: str) -> StoredRows:
    """Returns the stored data of rows."""
    last = set(last_rows(keys).values())
    columns = read_columns(keys, partition_id=partition_id, names=["extra_fields", "response_mask"])
    extras = [extra or {} for extra in columns.get("extra_fields", [{}] * len(keys))]
    is_ours = all(PLACE in extra for extra in extras)
    return StoredRows(
        is_copy=[key not in last and PLACE not in extra for key, extra in zip(keys, extras, strict=True)],
        is_side=[extra[PLACE] == "side" for extra in extras] if is_ours else None,
        agents=tuple(extra.get(AGENT, "") for extra in extras),
        masks=columns.get("response_mask", []),
    )
