"""Worker processes on a Ray cluster that run jobs of a command, each with an event loop of its own.

A job whose worker or node dies runs again on another worker. Only its caller gets the result, so a caller that keeps
results in a journal has each exactly once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from verl_agentic.base.errors import AgenticError, ConfigError, EnvError, InfrastructureError
from verl_agentic.log.secrets import secret_variables

Work = Callable[[Any], Awaitable[Any]]
"""Runs one job; both job and result pickle, as Ray does it."""
MakeWork = Callable[[], AbstractAsyncContextManager[Work]]
"""Makes the function of a worker; pickles, and is called in each worker."""

_MAX_LOSSES = 3
_START_TIMEOUT_S = 300.0
_STOP_TIMEOUT_S = 10.0


@contextlib.asynccontextmanager
async def ray_workers(
    make_work: MakeWork, *, address: str = "auto", workers: int | None = None, concurrency: int
) -> AsyncIterator[Work]:
    """Starts workers on a cluster; yields a function that runs a job on the least busy one.

    The function raises what the job raised if that is an error of this package, and EnvError for a job whose workers
    died three times. Workers get the environment variables of this process that are named like secrets and that they
    lack.

    Args:
        make_work: makes the function of each worker.
        address: of the cluster; `auto` takes the one that runs on this machine, and else starts one here.
        workers: number of workers, each with one CPU; None for one per CPU of the cluster.
        concurrency: number of jobs that run at one time on all workers together.

    Raises:
        ConfigError: no cluster at this address, or it has fewer CPUs than workers.
    """
    is_ours = not ray.is_initialized()
    if is_ours:
        _join_cluster(address)
    try:
        count = _count_workers(workers)
        team = _Team(make_work, seats=-(-concurrency // count))
        try:
            team.start(count)
            yield team.run
        finally:
            await team.stop()
    finally:
        if is_ours:
            await asyncio.to_thread(ray.shutdown)


def _join_cluster(address: str) -> None:
    options: dict[str, Any] = {"include_dashboard": False} if address == "auto" else {"address": address}
    try:
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
    except (RayError, OSError, RuntimeError, ValueError) as cause:
        raise ConfigError(
            f"there is no Ray cluster at {address!r}, got {cause}; start one with `ray start --head`, or use --ray auto"
        ) from cause


def _count_workers(workers: int | None) -> int:
    cpus = int(ray.cluster_resources().get("CPU", 0))
    count = cpus if workers is None else workers
    if not 1 <= count <= cpus:
        raise ConfigError(f"--workers must be from 1 to {cpus}, the CPUs of the cluster, got {workers}; change it")
    return count


class _WorkerActor:
    """A worker: the function that `make_work` makes, in a process of its own."""

    def __init__(self, make_work: MakeWork, folder: str, keys: dict[str, str]) -> None:
        with contextlib.suppress(OSError):  # another node may lack it; relative paths mean the caller's
            os.chdir(folder)
        for name, value in keys.items():
            os.environ.setdefault(name, value)
        self._make_work = make_work
        self._stack = contextlib.AsyncExitStack()
        self._work: Work | None = None

    async def start(self) -> None:
        """Makes the function."""
        self._work = await self._stack.enter_async_context(self._make_work())

    async def run(self, job: Any) -> Any:
        """Runs one job."""
        assert self._work is not None
        return await self._work(job)

    async def stop(self) -> None:
        """Closes what the function used."""
        await self._stack.aclose()


@dataclass
class _Worker:
    """An actor and the number of its seats that jobs have."""

    actor: Any
    num_taken: int = 0


class _Team:
    """The workers that live; a worker that dies is replaced as soon as the cluster has room for it."""

    def __init__(self, make_work: MakeWork, *, seats: int) -> None:
        self._make_work, self._seats = make_work, seats
        self._workers: list[_Worker] = []
        self._starts: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()
        self._num_alone = 0
        self._failed_starts = 0
        self._failure: AgenticError | None = None

    def start(self, count: int) -> None:
        for _ in range(count):
            start = asyncio.create_task(self._start_one())
            self._starts.add(start)
            start.add_done_callback(self._starts.discard)

    async def run(self, job: Any) -> Any:
        last: RayError | None = None
        for chance in range(1, _MAX_LOSSES + 1):
            seats = self._seats if chance == _MAX_LOSSES else 1  # alone at last: the jobs beside it may be the cause
            worker = await self._take_seats(seats)
            call = worker.actor.run.remote(job)
            try:
                return await call
            except asyncio.CancelledError:
                ray.cancel(call)
                raise
            except RayTaskError as error:
                raise _unwrap_task_error(error) from error
            except RayError as error:  # the worker or its node died, or the result was lost with the node
                await self._replace_worker(worker)
                last = error
            finally:
                worker.num_taken -= seats
                async with self._changed:
                    self._changed.notify_all()
        raise EnvError(
            f"the job ended {_MAX_LOSSES} workers, got {_shorten_error(last)}; look at its memory and at native code"
        ) from last

    async def stop(self) -> None:
        for start in list(self._starts):
            start.cancel()
        await asyncio.gather(*self._starts, return_exceptions=True)
        stops = [worker.actor.stop.remote() for worker in self._workers]
        if stops:
            await asyncio.wait(map(asyncio.ensure_future, map(_wait_for_call, stops)), timeout=_STOP_TIMEOUT_S)
        for worker in self._workers:
            ray.kill(worker.actor)

    async def _take_seats(self, seats: int) -> _Worker:
        """Returns the least busy worker with so many free seats, once there is one; a job that needs all goes first."""
        is_alone = seats > 1
        self._num_alone += is_alone
        try:
            async with self._changed:
                while True:
                    if self._failure is not None:
                        raise self._failure
                    free = [worker for worker in self._workers if worker.num_taken + seats <= self._seats]
                    if free and (is_alone or not self._num_alone):
                        worker = min(free, key=lambda candidate: candidate.num_taken)
                        worker.num_taken += seats
                        return worker
                    await self._wait_for_change()
        finally:
            self._num_alone -= is_alone

    async def _wait_for_change(self) -> None:
        if self._workers:
            await self._changed.wait()
            return
        try:
            await asyncio.wait_for(self._changed.wait(), _START_TIMEOUT_S)
        except TimeoutError as cause:
            raise InfrastructureError(
                f"no worker could start in {_START_TIMEOUT_S:g} s, got {ray.available_resources()} free on the "
                "cluster; add nodes or use fewer --workers"
            ) from cause

    async def _start_one(self) -> None:
        actor: Any = ray.remote(_WorkerActor).options(
            num_cpus=1, scheduling_strategy="SPREAD", max_concurrency=self._seats + 1
        ).remote(self._make_work, os.getcwd(), secret_variables(os.environ))  # fmt: skip
        failure: AgenticError | None = None
        try:
            await actor.start.remote()
        except asyncio.CancelledError:
            ray.kill(actor)
            raise
        except RayTaskError as error:
            failure = _unwrap_task_error(error)
        except RayError as error:
            self._failed_starts += 1
            if self._failed_starts < _MAX_LOSSES:
                self.start(1)
            else:
                failure = InfrastructureError(
                    f"{_MAX_LOSSES} workers died while they started, got {_shorten_error(error)}; read Ray's logs"
                )
        else:
            self._failed_starts = 0
            self._workers.append(_Worker(actor))
        async with self._changed:
            self._failure = self._failure or failure
            self._changed.notify_all()

    async def _replace_worker(self, worker: _Worker) -> None:
        if worker in self._workers:  # the first of its jobs to notice
            self._workers.remove(worker)
            ray.kill(worker.actor)
            self.start(1)


def _unwrap_task_error(error: RayTaskError) -> AgenticError:
    """Returns the error of this package that a job raised, or one that quotes the foreign error."""
    cause = error.cause
    return (
        cause if isinstance(cause, AgenticError) else EnvError(f"the job failed, got {type(cause).__name__}: {cause}")
    )


def _shorten_error(error: RayError | None) -> str:
    """Returns the first line: Ray explains at length."""
    return str(error).partition("\n")[0]


async def _wait_for_call(call: Any) -> None:
    with contextlib.suppress(RayError):
        await call
