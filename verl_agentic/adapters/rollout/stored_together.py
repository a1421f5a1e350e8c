"""Patches verl: `list_of_dict_to_tensordict` of its `agent_loop_tq`, and `async_kv_batch_put` of TransferQueue.

verl stores the rows of each session by a call of its own, which is several messages between threads or processes.
Here, the rows of all sessions that end while a call is under way are stored by the next call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
import transfer_queue
from verl.trainer.ppo.v1 import agent_loop_tq
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from verl_agentic.adapters.patching import wrap


class _Rows(list[dict[str, Any]]):
    """The columns of each row of a session."""


@dataclass(eq=False)
class _Session:
    keys: Sequence[str]
    rows: _Rows
    tags: Sequence[dict[str, Any]]
    is_done: bool = False
    error: Exception | None = None


@dataclass
class _Queue:
    """Sessions with the same columns, of one partition and event loop."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: list[_Session] = field(default_factory=list)


_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Any, _Queue]] = WeakKeyDictionary()


@wrap(agent_loop_tq, "list_of_dict_to_tensordict")
def keep_rows(convert: Any, list_of_dicts: Sequence[dict[str, Any]]) -> Any:
    """Leaves the columns of a session as they are until they are stored."""
    # Rows of different lengths make a nested tensor, which has one dimension of a length of its own: the first.
    is_flat = all(value.dim() < 2 for row in list_of_dicts for value in row.values() if isinstance(value, torch.Tensor))
    return _Rows(list_of_dicts) if is_flat else convert(list_of_dicts)


@wrap(transfer_queue, "async_kv_batch_put")
async def store_together(
    put: Any, keys: Any, partition_id: str, fields: Any = None, tags: Any = None, **options: Any
) -> Any:
    """Stores the rows of a session with those of others; what it raises concerns all of them."""
    if not isinstance(fields, _Rows):
        return await put(keys=keys, partition_id=partition_id, fields=fields, tags=tags, **options)
    queues = _queues.setdefault(asyncio.get_running_loop(), {})
    queue = queues.setdefault((partition_id, *sorted(fields[0])), _Queue())
    session = _Session(keys, fields, tags)
    taken: list[_Session] = []
    queue.waiting.append(session)
    try:
        async with queue.lock:
            if not session.is_done:
                taken, queue.waiting = queue.waiting, []
                await _store(put, partition_id, taken)
    except asyncio.CancelledError:  # of this session: another one stores the others
        queue.waiting = [one for one in taken + queue.waiting if one is not session]
        raise
    if session.error is not None:
        raise session.error
    return None


async def _store(put: Any, partition_id: str, sessions: Sequence[_Session]) -> None:
    try:
        await put(
            keys=[key for one in sessions for key in one.keys],
            partition_id=partition_id,
            fields=list_of_dict_to_tensordict([row for one in sessions for row in one.rows]),
            tags=[tag for one in sessions for tag in one.tags],
        )
    except Exception as error:
        for one in sessions:
            one.error = error
    for one in sessions:
        one.is_done = True
