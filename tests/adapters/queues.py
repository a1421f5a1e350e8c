"""A stand-in of TransferQueue in memory, and groups of episodes in it, for tests of replay buffers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tensordict.tensorclass import NonTensorStack


class Queue:
    """Tags and columns by key, for one partition after the other."""

    def __init__(self) -> None:
        self.tags: dict[str, dict[str, dict[str, Any]]] = {"train": {}}
        self.rows: dict[str, dict[str, Any]] = {}
        self.read: list[str] = []
        """Every key that columns were read of."""

    def kv_list(self, partition_id: str | None = None) -> dict[str, dict[str, dict[str, Any]]]:
        return {name: {key: dict(tag) for key, tag in tags.items()} for name, tags in self.tags.items()}

    def kv_batch_get(
        self, *, keys: Sequence[str], partition_id: str, select_fields: Sequence[str] | None = None
    ) -> TensorDict:
        self.read += keys
        columns: dict[str, Any] = {}
        for name in self.rows[keys[0]] if select_fields is None else select_fields:
            values = [self.rows[key][name] for key in keys if name in self.rows[key]]
            if len(values) == len(keys):
                columns[name] = _column(values)
        return TensorDict(columns, batch_size=[len(keys)])

    def kv_batch_put(
        self,
        *,
        keys: Sequence[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        for place, key in enumerate(keys):
            if tags is not None:
                self.tags[partition_id].setdefault(key, {}).update(tags[place])
            for name in [] if fields is None else list(fields.keys()):
                value = list(fields[name])[place]
                self.rows.setdefault(key, {})[name] = value if isinstance(value, torch.Tensor) else _plain(value)

    def kv_clear(self, *, keys: Sequence[str], partition_id: str) -> None:
        for key in keys:
            self.tags[partition_id].pop(key, None)
            self.rows.pop(key, None)

    def put_prompt(self, uid: str, status: str, *, step: int = 1, partition: str = "train") -> None:
        """Notes what state a group is in."""
        tag = {"is_prompt": True, "status": status, "global_steps": step}
        self.tags.setdefault(partition, {})[uid] = tag

    def put_group(
        self,
        uid: str,
        accs: Sequence[float | None],
        *,
        status: str = "finished",
        step: int = 1,
        weights: int | None = None,
        rewards: Sequence[float] | None = None,
        partition: str = "train",
        columns: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        """Puts a group with one session per outcome in; None is a void one. Responses have 4 tokens."""
        self.put_prompt(uid, status, step=step, partition=partition)
        for place, acc in enumerate(accs):
            numbers = {"acc": 0.0, "void": 1.0} if acc is None else {"acc": acc}
            reward = (rewards[place] if rewards else acc) or 0.0
            key = f"{uid}_{place}_0"
            self.tags[partition][key] = {
                "status": "success",
                "response_len": 4,
                "prompt_len": 2,
                "global_steps": step,
                "min_global_steps": step - 1 if weights is None else weights,
                "max_global_steps": step - 1,
            }
            extra = {"reward_extra_info": numbers, "error": "SandboxError: gone" if acc is None else ""}
            self.rows[key] = {
                "extra_fields": {**extra, "stop_reason": "infra_error" if acc is None else "answered"},
                "rm_scores": torch.tensor([0.0, 0.0, 0.0, reward]),
                **(columns[place] if columns else {}),
            }

    def uids(self, partition: str = "train") -> set[str]:
        """Returns the groups that are there."""
        return {key for key, tag in self.tags[partition].items() if tag.get("is_prompt")}


def _plain(value: Any) -> Any:
    return getattr(value, "data", value)


def _column(values: Sequence[Any]) -> Any:
    if isinstance(values[0], torch.Tensor) and values[0].ndim:
        return torch.nested.as_nested_tensor(list(values), layout=torch.jagged)
    return torch.stack(list(values)) if isinstance(values[0], torch.Tensor) else NonTensorStack(*values)


def install(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the stand-in in the place of TransferQueue, for everyone who has imported it."""
    transfer_queue = sys.modules["transfer_queue"]
    for name in ("kv_list", "kv_batch_get", "kv_batch_put", "kv_clear"):
        monkeypatch.setattr(transfer_queue, name, getattr(queue, name))
