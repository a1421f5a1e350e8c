"""The rows of sessions that end together are stored by one call, and each is stored as if alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import agent_loop_tq

from verl_agentic.verl.rollout.stored_together import store_tag, store_together


class Put:
    """TransferQueue's call: takes a while, and fails on demand."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.rows: dict[str, dict[str, Any]] = {}
        self.fails = False

    async def __call__(self, *, keys: list[str], partition_id: str, fields: Any, tags: Any) -> None:
        self.calls.append(keys)
        await asyncio.sleep(0.01)
        if self.fails:
            raise RuntimeError("full")
        for place, key in enumerate(keys):
            tokens, words = list(fields["tokens"])[place], fields["words"][place]
            self.rows[key] = {"tokens": tokens.tolist(), "words": words, "tag": tags[place], "partition": partition_id}


def session(put: Put, number: int, *, tokens: Any = None, partition: str = "train") -> Any:
    """Stores a session of two rows."""
    rows = [{"tokens": torch.arange(number + row) if tokens is None else tokens, "words": [number]} for row in (1, 2)]
    return store_together(
        put,
        keys=[f"{number}_0", f"{number}_1"],
        partition_id=partition,
        fields=agent_loop_tq.list_of_dict_to_tensordict(rows),
        tags=[{"row": (number, row)} for row in (0, 1)],
    )


async def test_each_row_is_stored_once_as_it_is_and_those_that_wait_are_stored_by_one_call() -> None:
    put = Put()
    await asyncio.gather(*(session(put, number) for number in range(5)), session(put, 9, partition="val"))
    assert put.calls == [
        ["0_0", "0_1"],
        ["9_0", "9_1"],
        [f"{number}_{row}" for number in range(1, 5) for row in (0, 1)],
    ]
    for number in (*range(5), 9):
        for row in (0, 1):
            partition = "val" if number == 9 else "train"
            tokens = list(range(number + row + 1))
            stored = {"tokens": tokens, "words": [number], "tag": {"row": (number, row)}, "partition": partition}
            assert put.rows[f"{number}_{row}"] == stored


async def test_a_failure_reaches_the_sessions_of_its_call_only() -> None:
    put = Put()
    put.fails = True
    ended = await asyncio.gather(*(session(put, number) for number in range(3)), return_exceptions=True)
    assert [str(one) for one in ended] == ["full"] * 3
    put.fails = False
    await session(put, 3)
    assert sorted(put.rows) == ["3_0", "3_1"]


@pytest.mark.parametrize(("cancelled", "call"), [(0, 1), (1, 1), (2, 1), (1, 2), (2, 2)])
async def test_a_cancelled_session_holds_up_no_other(cancelled: int, call: int) -> None:
    put = Put()
    tasks = [asyncio.ensure_future(session(put, number)) for number in range(4)]
    while len(put.calls) < call:  # the first call stores session 0, the second one the others
        await asyncio.sleep(0)
    tasks[cancelled].cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(one, asyncio.CancelledError) for one in ended] == [number == cancelled for number in range(4)]
    others = {f"{number}_{row}" for number in {0, 1, 2, 3} - {cancelled} for row in (0, 1)}
    assert others <= put.rows.keys()
    assert call == 2 or put.rows.keys() == others


async def test_rows_whose_tensors_have_two_dimensions_are_stored_alone() -> None:
    put = Put()
    await asyncio.gather(*(session(put, number, tokens=torch.ones(3, number + 1)) for number in range(3)))
    assert len(put.calls) == 3


class Tags:
    """TransferQueue's call for tags."""

    def __init__(self) -> None:
        self.calls: list[list[tuple[str, str]]] = []

    async def __call__(self, *, keys: list[str], partition_id: str, fields: Any, tags: Any) -> KVBatchMeta:
        assert fields is None and len(set(keys)) == len(keys)
        self.calls.append([(key, tag["status"]) for key, tag in zip(keys, tags, strict=True)])
        await asyncio.sleep(0.01)
        known = [{"first": True, **tag} for tag in tags]
        return KVBatchMeta(keys=keys, tags=known, partition_id=partition_id, extra_info={"n": len(keys)})


async def test_tags_of_prompts_are_stored_together_and_each_caller_gets_its_own() -> None:
    put = Tags()
    prompts = [("a", "running"), ("b", "running"), ("c", "running"), ("b", "finished"), ("d", "running")]
    stored = await asyncio.gather(
        *(store_together(put, keys=[key], partition_id="train", tags=[{"status": status}]) for key, status in prompts)
    )
    assert put.calls == [prompts[:1], prompts[1:3], prompts[3:]], "a call has a key once, and no tag overtakes another"
    assert [(one.keys, one.tags) for one in stored] == [
        ([key], [{"first": True, "status": status}]) for key, status in prompts
    ]


async def test_a_tag_that_is_stored_with_fields_is_stored_alone() -> None:
    calls = []

    async def put(**call: Any) -> str:
        calls.append(call)
        return "stored"

    assert await store_tag(put, "a", "train", {"x": 1}, {"status": "running"}) == "stored"
    assert await store_tag(put, "a", "train", tag={"status": "running"}, data_parser=max) == "stored"
    assert [call["key"] for call in calls] == ["a", "a"]
