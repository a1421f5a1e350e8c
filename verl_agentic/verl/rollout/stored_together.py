"""Patches verl: `list_of_dict_to_tensordict` of its `agent_loop_tq`, and `async_kv_put` and `async_kv_batch_put` of
TransferQueue.

verl stores the rows of each session, and the begin and end of each prompt, by a call of its own. A call is several
messages between threads or processes. Here, the rows of all sessions that end while a call is under way are stored by
the next call, and so are the tags.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
import transfer_queue
from verl.trainer.ppo.v1 import agent_loop_tq
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from verl_agentic.verl.patching import wrap


class _Rows(list[dict[str, Any]]):
    """The columns of each row of a session."""


@dataclass(eq=False)
class _Put:
    """The rows of a session, or tags alone."""

    keys: Sequence[str]
    rows: _Rows
    tags: Sequence[dict[str, Any]]
    is_done: bool = False
    error: Exception | None = None
    stored: Any = None
    """What TransferQueue returned for all that were stored with it."""


@dataclass
class _Queue:
    """Puts with the same columns, of one partition and event loop."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: list[_Put] = field(default_factory=list)

    def take(self) -> list[_Put]:
        """Takes the first ones out, up to one of a key that is among them: a call has each key once."""
        keys: set[str] = set()
        count = 0
        while count < len(self.waiting) and keys.isdisjoint(self.waiting[count].keys):
            keys.update(self.waiting[count].keys)
            count += 1
        first_puts, self.waiting = self.waiting[:count], self.waiting[count:]
        return first_puts


_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Any, _Queue]] = WeakKeyDictionary()


@wrap(agent_loop_tq, "list_of_dict_to_tensordict")
def keep_rows(convert: Any, list_of_dicts: Sequence[dict[str, Any]]) -> Any:
    """Leaves the columns of a session as they are until they are stored."""
    # Rows of different lengths make a nested tensor, which has one dimension of a length of its own: the first.
    is_flat = all(value.dim() < 2 for row in list_of_dicts for value in row.values() if isinstance(value, torch.Tensor))
    return _Rows(list_of_dicts) if is_flat else convert(list_of_dicts)


@wrap(transfer_queue, "async_kv_put")
async def store_tag(put: Any, key: Any, partition_id: str, fields: Any = None, tag: Any = None, **options: Any) -> Any:
    """Stores the tag of a key with those of others."""
    if fields is not None or tag is None or options:
        return await put(key=key, partition_id=partition_id, fields=fields, tag=tag, **options)
    return await transfer_queue.async_kv_batch_put(keys=[key], partition_id=partition_id, tags=[tag])


@wrap(transfer_queue, "async_kv_batch_put")
async def store_together(
    put: Any, keys: Any, partition_id: str, fields: Any = None, tags: Any = None, **options: Any
) -> Any:
    """Stores the rows of a session, or tags, with those of others; what it raises concerns all of them."""
    are_tags = fields is None and tags is not None and len(keys) == len(tags)
    if options or not (are_tags or isinstance(fields, _Rows)):
        return await put(keys=keys, partition_id=partition_id, fields=fields, tags=tags, **options)
    queues = _queues.setdefault(asyncio.get_running_loop(), {})
    request = _Put(keys, fields if isinstance(fields, _Rows) else _Rows(), tags or ())
    queue = queues.setdefault((partition_id, *sorted(request.rows[0] if request.rows else ())), _Queue())
    taken_requests: list[_Put] = []
    queue.waiting.append(request)
    try:
        async with queue.lock:
            if not request.is_done:
                taken_requests = queue.take()
                await _store_puts(put, partition_id, taken_requests)
    except asyncio.CancelledError:  # of this put: another one stores the others
        queue.waiting = [other for other in taken_requests + queue.waiting if other is not request]
        raise
    if request.error is not None:
        raise request.error
    return request.stored and _part_of(request.stored, request)


async def _store_puts(put: Any, partition_id: str, puts: Sequence[_Put]) -> None:
    rows = [row for request in puts for row in request.rows]
    try:
        stored = await put(
            keys=[key for request in puts for key in request.keys],
            partition_id=partition_id,
            fields=list_of_dict_to_tensordict(rows) if rows else None,
            tags=[tag for request in puts for tag in request.tags],
        )
        for request in puts:
            request.stored = stored
    except Exception as error:
        for request in puts:
            request.error = error
    for request in puts:
        request.is_done = True


def _part_of(stored: transfer_queue.KVBatchMeta, request: _Put) -> transfer_queue.KVBatchMeta:
    tags = dict(zip(stored.keys, stored.tags, strict=True))
    return dataclasses.replace(stored, keys=list(request.keys), tags=[tags[key] for key in request.keys])
