"""A Ray cluster of one node and a job on it, each a process of its own; prints what the job saw as one line of JSON.

python sandbox_jobs.py cluster FOLDER    starts Ray, runs the job, and looks what is left when it has ended
python sandbox_jobs.py job               the job; RAY_ADDRESS says where
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from typing import Any

import ray
from patience import PATIENCE_S

from verl_agentic.base.errors import SandboxError
from verl_agentic.sandbox.interface import Command, Limits
from verl_agentic.sandbox.pools.sandbox_pool import PoolConfig
from verl_agentic.verl.extensions.node_pool import NAMESPACE, NodePool

LIMITS = Limits(wall_s=30.0)
SIZE = 2


def pool() -> NodePool:
    return NodePool("local", at_least="none", config=PoolConfig(size=SIZE, warm=0), is_trusted=True)


@ray.remote(num_cpus=0)
class Worker:
    """A process of the job."""

    def __init__(self) -> None:
        self._pool = pool()

    async def spans(self, count: int) -> list[tuple[float, float]]:
        """Runs programs at the same time; returns when each ran."""
        code = "import time; start = time.time(); time.sleep(0.3); print(start, time.time())"
        results = await asyncio.gather(*(self._pool.run(Command(code=code), limits=LIMITS) for _ in range(count)))
        return [tuple(map(float, result.stdout.split())) for result in results]  # type: ignore[misc]

    async def die_with_a_lease(self) -> None:
        """Leases a sandbox and dies."""
        async with self._pool.lease() as sandbox:
            await sandbox.run(Command(code="1"), limits=LIMITS)
            os._exit(1)

    async def use_a_lease(self) -> list[str]:
        """Does in a leased sandbox all that can be done there."""
        async with self._pool.lease() as sandbox:
            await sandbox.run(Command(code="open('f', 'w').write('1')"), limits=LIMITS)
            snapshot = await sandbox.snapshot()
            await sandbox.reset()
            gone = await sandbox.run(Command(argv=["ls"]), limits=LIMITS)
            await sandbox.reset(snapshot)
            await sandbox.put_tree({"x": b"1"}, at="tree")
            assert (await sandbox.take_tree("tree", max_bytes=10, max_files=10)).files == {"x": b"1"}
            back = await sandbox.run(Command(argv=["ls"]), limits=LIMITS)
            session = await sandbox.open_session("python", limits=LIMITS)
            await session.run("x = 20", wall_s=10)
            value = await session.run("x + 1", wall_s=10)
            await session.close()
        try:
            await sandbox.run(Command(code="1"), limits=LIMITS)
        except SandboxError as error:
            return [gone.stdout, back.stdout, value.stdout, str(error)]
        return []

    async def cancel_a_call(self) -> float:
        """Cancels a call that would take a minute; returns how long it took until the sandbox was free again."""
        task = asyncio.create_task(
            self._pool.run(Command(code="import time; time.sleep(60)"), limits=Limits(wall_s=90))
        )
        while (await self._pool.metrics())["running"] < 1:
            await asyncio.sleep(0.05)
        started = time.monotonic()
        task.cancel()
        while (await self._pool.metrics())["running"] > 0:
            await asyncio.sleep(0.05)
        return time.monotonic() - started


async def survive_the_actor() -> list[str]:
    mine = pool()
    await mine.run(Command(code="1"), limits=LIMITS)
    ray.kill(mine._actor)
    seen = []
    for _ in range(3):
        try:
            seen.append((await mine.run(Command(code="print('back')"), limits=LIMITS)).stdout)
        except SandboxError as error:
            seen.append(type(error).__name__)
    return seen


def named() -> list[str]:
    return [
        actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True) if actor["namespace"] == NAMESPACE
    ]


def most_at_once(spans: list[tuple[float, float]]) -> int:
    return max(sum(start <= moment < end for start, end in spans) for moment, _ in spans)


def job() -> dict[str, Any]:
    ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)
    workers: list[Any] = [Worker.remote() for _ in range(3)]
    spans = [span for part in ray.get([worker.spans.remote(3) for worker in workers]) for span in part]
    seen: dict[str, Any] = {"runs": len(spans), "at_once": most_at_once(spans), "actors": len(named())}
    # The one that made the actor may be the first: the actor must survive each of them.
    for worker in workers[:2]:
        try:
            ray.get(worker.die_with_a_lease.remote())
        except ray.exceptions.RayActorError:
            seen["deaths"] = seen.get("deaths", 0) + 1
    seen["lease"] = ray.get(workers[2].use_a_lease.remote(), timeout=PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while (running := asyncio.run(pool().metrics())["running"]) and time.monotonic() < deadline:
        time.sleep(0.1)
    seen["still_leased"] = running
    seen["cancel_s"] = ray.get(workers[2].cancel_a_call.remote(), timeout=PATIENCE_S)
    seen["actors_later"] = len(named())
    seen["after_death"] = asyncio.run(survive_the_actor())
    return seen


def cluster(folder: str) -> dict[str, Any]:
    context = ray.init(num_cpus=2, _temp_dir=folder, include_dashboard=False, log_to_driver=False)
    command = [sys.executable, __file__, "job"]
    environment = {**os.environ, "RAY_ADDRESS": context.address_info["gcs_address"]}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if done.returncode:
        return {"error": done.stdout + done.stderr}
    deadline = time.monotonic() + PATIENCE_S
    while named() and time.monotonic() < deadline:
        time.sleep(0.2)
    return {**last_object(done.stdout), "actors_left": named()}


def last_object(output: str) -> dict[str, Any]:
    """Returns what was printed as JSON, between the lines that Ray prints."""
    return json.loads([line for line in output.splitlines() if line.startswith("{")][-1])


if __name__ == "__main__":
    print(json.dumps(cluster(sys.argv[2]) if sys.argv[1] == "cluster" else job()))
    ray.shutdown()
