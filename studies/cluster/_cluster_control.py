"""Measures what the processes at the head cost: verl's balancer and the controller of TransferQueue, as Ray actors.

The clients run in this process and other Ray workers. Times are those of the server's process, by its CPU clock.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import ray
import torch
import transfer_queue as tq
from _report import median, progress
from tensordict import TensorDict
from verl.workers.rollout.router import GlobalRequestLoadBalancer

_CALLS, _BATCH = 4_000, 200


def measure_control(*, quick: bool) -> dict[str, float]:
    """Returns seconds per call of the balancer and the controller, in all of a process and on its busiest thread."""
    calls, keys = (400, (200, 400)) if quick else (_CALLS, (2_000, 8_000))
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="cluster", dir="/tmp") as folder:
        ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, _temp_dir=str(Path(folder) / "ray"))
        try:
            found |= _balancer(calls)
            found |= _queue(calls // 8, keys)
        finally:
            ray.shutdown()
    return found


@ray.remote(num_cpus=0)
class _Balancer(GlobalRequestLoadBalancer):
    def cpu_s(self) -> float:
        return time.process_time()


def _read_cpu_s(actor: Any) -> float:
    seconds: Any = ray.get(actor.cpu_s.remote())
    return seconds


def _balancer(calls: int) -> dict[str, float]:
    """Times a turn (acquire and release) as seen by a full balancer, and the CPU time of both ends."""
    found = {}
    for name, engines, sessions in (("hit", 1, 8), ("miss", 1, calls), ("miss_1000_engines", 1_000, calls)):
        actor: Any = _Balancer.remote(servers={f"s{i}": None for i in range(engines)})
        ray.get(actor.get_status.remote())

        async def turn(session: str, actor: Any = actor) -> None:
            server, _ = await actor.acquire_server.remote(request_id=session)
            actor.release_server.remote(server_id=server)

        async def turns(turn: Any = turn, sessions: int = sessions) -> None:
            for first in range(0, calls, _BATCH):
                await asyncio.gather(*(turn(str(n % sessions)) for n in range(first, min(calls, first + _BATCH))))

        rounds = []
        for _ in range(3):
            wall, mine, theirs = time.perf_counter(), time.process_time(), _read_cpu_s(actor)
            asyncio.run(turns())
            spent = time.process_time() - mine
            rounds.append((_read_cpu_s(actor) - theirs, spent, time.perf_counter() - wall))
        server, client, wall = (median([one[place] / calls for one in rounds]) for place in range(3))
        found |= {f"balancer_turn_cpu_s.{name}": server, f"client_turn_cpu_s.{name}": client}
        found[f"balancer_turn_wall_s.{name}"] = wall
        progress(f"balancer, {name}: {1e6 * server:.0f} us of CPU a turn, {1e6 * wall:.0f} us in all")
        ray.kill(actor)
    return found


def _queue(episodes: int, keys: tuple[int, int]) -> dict[str, float]:
    """Times puts of rows, and listings of all keys, by the CPU clock of the controller's process."""
    tq.init()
    controller = _controller_process()
    row = {name: torch.zeros(1, 64, dtype=torch.int64) for name in ("prompts", "responses", "input_ids", "loss_mask")}
    tag = {"status": "success", "prompt_len": 64, "response_len": 64, "seq_len": 128, "global_steps": 1}
    tag |= {"min_global_steps": 0, "max_global_steps": 1}

    def cpu_s() -> float:
        times = controller.cpu_times()
        return times.user + times.system

    def put(key: str) -> None:
        tq.kv_batch_put(keys=[key], partition_id="train", fields=TensorDict(row, batch_size=1), tags=[dict(tag)])

    before, wall = cpu_s(), time.perf_counter()
    for number in range(episodes):
        put(f"p{number}_0_0")
    found = {"put_cpu_s": (cpu_s() - before) / episodes, "put_wall_s": (time.perf_counter() - wall) / episodes}
    before = cpu_s()
    for number in range(episodes):
        tq.kv_put(key=f"q{number}", partition_id="train", tag={"is_prompt": True, "status": "running"})
    found["put_tag_cpu_s"] = (cpu_s() - before) / episodes
    progress(f"TransferQueue: {1e3 * found['put_cpu_s']:.2f} ms a row, {1e3 * found['put_tag_cpu_s']:.2f} ms a tag")
    return found | _listing(keys, tag, cpu_s)


def _listing(keys: tuple[int, int], tag: dict[str, Any], cpu_s: Callable[[], float]) -> dict[str, float]:
    """Returns the seconds of a listing per key, from listings of two sizes."""
    times, known = [], 0
    for wanted in keys:
        names = [f"k{number}_0_0" for number in range(known, wanted)]
        tq.kv_batch_put(keys=names, partition_id="list", tags=[dict(tag) for _ in names])
        known, rounds = wanted, 40
        before, wall = cpu_s(), time.perf_counter()
        for _ in range(rounds):
            assert len(tq.kv_list(partition_id="list")["list"]) == wanted
        times.append(((cpu_s() - before) / rounds, (time.perf_counter() - wall) / rounds))
    (few_cpu, few_wall), (many_cpu, many_wall) = times
    more = keys[1] - keys[0]
    progress(f"a list of {keys[1]} keys: {many_wall:.2f} s")
    return {"list_key_cpu_s": (many_cpu - few_cpu) / more, "list_key_wall_s": (many_wall - few_wall) / more}


def _controller_process() -> psutil.Process:
    """Returns the process of the controller's actor."""
    ours = psutil.Process().children(recursive=True)
    (found,) = [one for one in ours if "TransferQueueController" in " ".join(one.cmdline())]
    return found
