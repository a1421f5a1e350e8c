"""Objects of an event loop are shared by its users and closed after the last one."""

from __future__ import annotations

import asyncio

import pytest

from verl_agentic.web.per_loop import SharedPerLoop


class Closable:
    def __init__(self, key: str) -> None:
        if key == "broken":
            raise OSError(key)
        self.key, self.is_closed = key, False

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.is_closed = True


def test_users_at_the_same_time_share_an_object_that_the_last_one_closes() -> None:
    shared: SharedPerLoop[str, Closable] = SharedPerLoop(Closable)

    async def use() -> None:
        async with shared.lend("a") as first:
            async with shared.lend("a") as second, shared.lend("b") as other:
                assert first is second and first is not other
                assert shared.list_lent() == [first, other]
            assert other.is_closed and not first.is_closed
        assert first.is_closed and shared.list_lent() == []
        async with shared.lend("a") as later:
            assert later is not first

    asyncio.run(use())


def test_a_user_that_comes_while_an_object_is_closed_gets_a_new_one() -> None:
    shared: SharedPerLoop[str, Closable] = SharedPerLoop(Closable)

    async def use() -> Closable:
        async with shared.lend("a") as lent:
            return lent

    async def use_in_turn() -> None:
        closing = asyncio.ensure_future(use())
        await asyncio.sleep(0)
        async with shared.lend("a") as lent:
            assert lent is not await closing and not lent.is_closed

    asyncio.run(use_in_turn())


def test_a_user_that_fails_or_is_cancelled_gives_the_object_back() -> None:
    shared: SharedPerLoop[str, Closable] = SharedPerLoop(Closable)

    async def wait() -> None:
        async with shared.lend("a"):
            await asyncio.Event().wait()

    async def use() -> None:
        with pytest.raises(OSError, match="broken"):
            async with shared.lend("broken"):
                raise AssertionError
        async with shared.lend("a") as lent:
            waiting = asyncio.ensure_future(wait())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert not lent.is_closed
        assert lent.is_closed and shared.list_lent() == []

    asyncio.run(use())


def test_event_loops_share_nothing() -> None:
    shared: SharedPerLoop[str, Closable] = SharedPerLoop(Closable)

    async def use() -> None:
        async with shared.lend("a") as lent:
            lent_in_thread = await asyncio.to_thread(asyncio.run, use_in_thread())
            assert lent_in_thread is not lent and lent_in_thread.is_closed and not lent.is_closed

    async def use_in_thread() -> Closable:
        async with shared.lend("a") as lent:
            return lent

    asyncio.run(use())
