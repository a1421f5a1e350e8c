"""The pool is bounded and fair, pushes back, and never lets one caller see what another one used."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from verl_agentic.base.deadlines import OverrunError, within
from verl_agentic.base.errors import ConfigError, SandboxBusyError, SandboxError
from verl_agentic.sandbox.interface import Command, CommandResult, Limits, SandboxSession, SessionKind, TakenTree, Tree
from verl_agentic.sandbox.pools.sandbox_pool import PoolConfig, SandboxPool

LIMITS = Limits()


class FakeSandbox:
    """Runs nothing; waits where it is told to, and remembers what was done with it."""

    def __init__(self, backend: FakeBackend, number: int) -> None:
        self._backend, self.number = backend, number
        self.is_usable = True
        self.is_closed = False
        self.runs: list[str | None] = []

    async def run(self, command: Command, *, limits: Limits, fresh: bool = False) -> CommandResult:
        assert fresh and not self.is_closed and self.is_usable
        self.runs.append(command.code)
        self._backend.order.append(command.code or "")
        self._backend.running += 1
        self._backend.most_running = max(self._backend.most_running, self._backend.running)
        try:
            if self._backend.hold_s:
                await asyncio.sleep(self._backend.hold_s)
            else:
                await self._backend.gate.wait()
        finally:
            self._backend.running -= 1
        if command.code == "fail":
            raise SandboxError("it broke, got a wish to; make a new one")
        if command.code == "die":
            self.is_usable = False
        return CommandResult(stdout=str(self.number), stderr="", exit_code=0, timed_out=False, wall_s=0.0)

    async def open_session(self, kind: SessionKind, *, limits: Limits) -> SandboxSession:
        raise NotImplementedError

    async def put_tree(
        self, files: Mapping[str, bytes], *, at: str = ".", modes: Mapping[str, int] | None = None
    ) -> None:
        raise NotImplementedError

    async def take_tree(self, at: str = ".", *, max_bytes: int, max_files: int) -> TakenTree:
        raise NotImplementedError

    async def snapshot(self) -> int:
        raise NotImplementedError

    async def reset(self, snapshot: int | None = None) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        self.is_closed = True


class FakeBackend:
    """Makes fake sandboxes; the gate lets their runs end."""

    name = "fake"

    def __init__(self) -> None:
        self.gate, self.hold_s = asyncio.Event(), 0.0
        self.made: list[FakeSandbox] = []
        self.order: list[str] = []
        self.running = self.most_running = 0
        self.failures = 0
        self.is_started = self.is_closed = False

    async def start(self) -> None:
        self.is_started = True

    async def create(self, *, trees: Sequence[Tree] = (), image: str | None = None) -> FakeSandbox:
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise SandboxError("none could be made, got a wish to fail; try again")
        self.made.append(FakeSandbox(self, len(self.made)))
        return self.made[-1]

    async def close(self) -> None:
        self.is_closed = True


@pytest.fixture
async def backend() -> FakeBackend:
    return FakeBackend()


async def _pool(backend: FakeBackend, **settings: float) -> SandboxPool:
    pool = SandboxPool(backend, PoolConfig(**{"size": 2, "warm": 0, **settings}))  # type: ignore[arg-type]
    await pool.start()
    return pool


async def _settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def _run(pool: SandboxPool, code: str = "x") -> asyncio.Task[CommandResult]:
    return asyncio.create_task(pool.run(Command(code=code), limits=LIMITS))


async def test_no_more_run_at_a_time_than_there_are_places(backend: FakeBackend) -> None:
    pool = await _pool(backend, size=3)
    tasks = [_run(pool) for _ in range(20)]
    await _settle()
    assert (backend.running, pool.metrics()["waiting"], pool.metrics()["running"]) == (3, 17.0, 3.0)
    backend.gate.set()
    await asyncio.gather(*tasks)
    assert backend.most_running == 3 and len(backend.made) == 3
    assert pool.metrics()["completed"] == 20.0 and pool.metrics()["waiting"] == 0.0
    await pool.close()


async def test_who_came_first_is_served_first(backend: FakeBackend) -> None:
    pool = await _pool(backend, size=1)
    tasks = []
    for i in range(10):
        tasks.append(_run(pool, str(i)))
        await asyncio.sleep(0)
    backend.gate.set()
    await asyncio.gather(*tasks)
    assert backend.order == [str(i) for i in range(10)]
    await pool.close()


async def test_too_many_callers_are_refused_at_once_and_late_ones_after_their_time(backend: FakeBackend) -> None:
    pool = await _pool(backend, size=1, max_waiting=2, wait_timeout_s=1.0)
    tasks = [_run(pool) for _ in range(3)]
    await _settle()
    with pytest.raises(SandboxBusyError, match="2 calls wait"):
        await pool.run(Command(code="x"), limits=LIMITS)
    assert all(isinstance(e, SandboxBusyError) for e in await asyncio.gather(*tasks[1:], return_exceptions=True))
    assert pool.metrics()["refused"] == 3.0
    backend.gate.set()
    assert (await tasks[0]).ok
    assert (await pool.run(Command(code="x"), limits=LIMITS)).ok
    await pool.close()


@pytest.mark.slow
async def test_failing_slowly_together_makes_all_wait_and_fails_nobody(backend: FakeBackend) -> None:
    pool = await _pool(backend, size=1, wait_timeout_s=2.5)
    backend.hold_s = 0.6  # the last one waits 3 s, longer than its deadline and than `wait_timeout_s`
    calls = [within(pool.run(Command(code="slow"), limits=LIMITS), 2.5, what="scoring") for _ in range(6)]
    assert all(result.ok for result in await asyncio.gather(*calls))
    await pool.close()


async def test_what_code_left_to_remove_is_time_of_the_code(backend: FakeBackend) -> None:
    pool = await _pool(backend, size=1)

    async def leave_much() -> None:
        async with pool.lease() as sandbox:
            sandbox.close = lambda: asyncio.sleep(60)  # type: ignore[method-assign]

    with pytest.raises(OverrunError) as late:
        await within(leave_much(), 0.2, what="scoring")
    assert late.value.by_code


async def test_cancelling_who_waits_loses_no_place(backend: FakeBackend) -> None:
    pool = await _pool(backend, size=1)
    first, second, third = _run(pool, "1"), _run(pool, "2"), _run(pool, "3")
    await _settle()
    second.cancel()
    await _settle()
    backend.gate.set()
    await asyncio.gather(first, third)
    assert backend.order == ["1", "3"] and second.cancelled()
    assert (await pool.run(Command(code="4"), limits=LIMITS)).ok
    await pool.close()


async def test_cancelling_in_the_very_moment_a_place_comes_free_loses_no_place(backend: FakeBackend) -> None:
    for turns in range(6):
        backend.gate.clear()
        pool = await _pool(backend, size=1)
        first, second = _run(pool), _run(pool)
        await _settle()
        backend.gate.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        result = await asyncio.wait_for(pool.run(Command(code="x"), limits=LIMITS), 2)
        assert result.ok
        await pool.close()


async def test_a_run_that_is_cancelled_gives_its_place_back_and_its_sandbox_is_not_used_again(
    backend: FakeBackend,
) -> None:
    pool = await _pool(backend, size=1)
    task = _run(pool)
    await _settle()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    backend.gate.set()
    assert (await pool.run(Command(code="x"), limits=LIMITS)).stdout == "1"
    assert backend.made[0].is_closed
    await pool.close()


async def test_a_sandbox_is_reused_up_to_its_number_of_uses(backend: FakeBackend) -> None:
    backend.gate.set()
    pool = await _pool(backend, size=1, max_uses=3)
    numbers = [(await pool.run(Command(code="x"), limits=LIMITS)).stdout for _ in range(7)]
    assert numbers == ["0", "0", "0", "1", "1", "1", "2"]
    await _settle()
    assert [sandbox.is_closed for sandbox in backend.made] == [True, True, False]
    assert pool.metrics()["retired"] == 2.0
    await pool.close()


async def test_a_sandbox_that_failed_or_died_with_its_program_is_replaced(backend: FakeBackend) -> None:
    backend.gate.set()
    pool = await _pool(backend, size=1)
    with pytest.raises(SandboxError, match="it broke"):
        await pool.run(Command(code="fail"), limits=LIMITS)
    assert (await pool.run(Command(code="die"), limits=LIMITS)).stdout == "1"
    assert (await pool.run(Command(code="x"), limits=LIMITS)).stdout == "2"
    assert backend.made[0].is_closed and backend.made[1].is_closed and pool.metrics()["failed"] == 1.0
    await pool.close()


async def test_a_leased_sandbox_is_nobody_else_s_before_or_after(backend: FakeBackend) -> None:
    backend.gate.set()
    pool = await _pool(backend, size=2, warm=1)
    await pool.run(Command(code="x"), limits=LIMITS)
    async with pool.lease() as leased:
        assert isinstance(leased, FakeSandbox) and leased.runs == []
        number = leased.number
        assert (await pool.run(Command(code="y"), limits=LIMITS)).stdout != str(number)
    assert backend.made[number].is_closed
    for _ in range(5):
        assert (await pool.run(Command(code="z"), limits=LIMITS)).stdout != str(number)
    await pool.close()


async def test_a_lease_whose_block_fails_is_closed_and_gives_its_place_back(backend: FakeBackend) -> None:
    backend.gate.set()
    pool = await _pool(backend, size=1)
    with pytest.raises(ZeroDivisionError):
        async with pool.lease():
            raise ZeroDivisionError
    assert backend.made[0].is_closed
    assert (await asyncio.wait_for(pool.run(Command(code="x"), limits=LIMITS), 2)).ok
    await pool.close()


async def test_a_sandbox_that_cannot_be_made_costs_no_place(backend: FakeBackend) -> None:
    backend.gate.set()
    backend.failures = 1
    pool = await _pool(backend, size=1)
    with pytest.raises(SandboxError, match="none could be made"):
        await pool.run(Command(code="x"), limits=LIMITS)
    assert (await asyncio.wait_for(pool.run(Command(code="x"), limits=LIMITS), 2)).ok
    await pool.close()


async def test_warm_sandboxes_are_ready_before_they_are_asked_for(backend: FakeBackend) -> None:
    backend.gate.set()
    pool = await _pool(backend, size=4, warm=2)
    await _settle()
    assert len(backend.made) == 2 and pool.metrics()["warm"] == 2.0
    async with pool.lease():
        await _settle()
        assert len(backend.made) == 3 and pool.metrics()["warm"] == 2.0
    await pool.close()


async def test_closing_ends_what_is_warm_and_refuses_who_waits_and_who_comes(backend: FakeBackend) -> None:
    pool = await _pool(backend, size=1, warm=1)
    running, waiting = _run(pool), _run(pool)
    await _settle()
    backend.gate.set()
    await pool.close()
    with pytest.raises(SandboxError, match="closed"):
        await waiting
    await asyncio.gather(running, return_exceptions=True)
    with pytest.raises(SandboxError, match="closed"):
        await pool.run(Command(code="x"), limits=LIMITS)
    await _settle()
    assert backend.is_closed and all(sandbox.is_closed for sandbox in backend.made)


async def test_settings_that_cannot_work_are_refused() -> None:
    for settings in ({"size": 0}, {"size": 2, "warm": 3}, {"max_uses": 0}, {"wait_timeout_s": 0.0}):
        with pytest.raises(ConfigError):
            PoolConfig(**settings)  # type: ignore[arg-type]
