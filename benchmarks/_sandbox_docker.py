"""The docker side of `sandbox.py`: a warm container against the engine's own exec, and the cost of a fresh container.

`docker_warm_vs_exec_latency`: one line of Python in a warm container, with folders that are wiped and proven empty,
over `docker exec` of that line in a running container (`docker_exec_sdk_ms`: the same exec by the SDK).
`docker_fresh_ms`: from asking for a container until the first program in it has ended.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from _report import median, progress

from verl_agentic.base.errors import AgenticError
from verl_agentic.sandbox.docker.docker_backend import DockerBackend, DockerConfig
from verl_agentic.sandbox.interface import Command, Limits
from verl_agentic.sandbox.pools.sandbox_pool import PoolConfig, SandboxPool

_PROGRAM = "print(sum(range(1000)))"
_LIMITS = Limits(wall_s=30.0)
_IMAGE = os.environ.get("VERL_AGENTIC_DOCKER_IMAGE", "verl-agentic-test:latest")
_IMAGE_SCRIPT = Path(__file__).parent.parent / ".ci" / "docker_image.py"
_KEYS = (
    ("ratios", "docker_warm_vs_exec_latency"),
    ("figures", "docker_warm_ms"),
    ("figures", "docker_exec_ms"),
    ("figures", "docker_exec_sdk_ms"),
    ("figures", "docker_fresh_ms"),
    ("figures", "docker_pool_wait_ms"),
    ("figures", "docker_warm_per_s"),
)


def measure(*, quick: bool) -> Iterator[tuple[str, str, float | None, str]]:
    """Yields (`ratios` or `figures`, key, value, reason why there is none)."""
    try:
        values = asyncio.run(_measure(rounds=3 if quick else 40))
    except (AgenticError, ImportError, FileNotFoundError) as cause:
        values, reason = {}, str(cause)
    else:
        reason = ""
    for kind, key in _KEYS:
        yield kind, key, values.get(key), reason


async def _measure(*, rounds: int) -> dict[str, float]:
    progress("docker: warm container against docker exec")
    backend = DockerBackend(DockerConfig(image=await asyncio.to_thread(provide_image)))
    await backend.start()
    try:
        warm, plain, by_sdk = await _warm_and_exec(backend, rounds=rounds)
        fresh = await _fresh(backend, rounds=max(3, rounds // 2))
        rate = await _rate(backend, seconds=0.5 if rounds < 10 else 4.0)
        waits = await _pool_waits(episodes=3 if rounds < 10 else 15)
    finally:
        await backend.close()
    return {
        "docker_warm_vs_exec_latency": median([a / b for a, b in zip(warm, plain, strict=True)]),
        "docker_warm_ms": median(warm) * 1e3,
        "docker_exec_ms": median(plain) * 1e3,
        "docker_exec_sdk_ms": median(by_sdk) * 1e3,
        "docker_fresh_ms": median(fresh) * 1e3,
        "docker_pool_wait_ms": median(waits) * 1e3,
        "docker_warm_per_s": rate,
    }


def provide_image() -> str:
    """Makes an image of this machine's own Python when the engine has not got it; returns its name."""
    import docker
    from docker.errors import DockerException

    try:
        client = docker.from_env()
    except DockerException:
        return _IMAGE  # the backend says what is wrong
    try:
        if not client.images.list(_IMAGE):
            rootfs = subprocess.run([sys.executable, _IMAGE_SCRIPT], capture_output=True, check=True).stdout
            name, _, tag = _IMAGE.partition(":")
            client.api.import_image_from_data(rootfs, name, tag or "latest")
    finally:
        client.close()
    return _IMAGE


async def _warm_and_exec(backend: DockerBackend, *, rounds: int) -> tuple[list[float], list[float], list[float]]:
    """Returns seconds of each, taken in turn: a warm execution, `docker exec`, an exec by the SDK."""
    import docker

    client = docker.from_env()
    sandbox = await backend.create()
    container = client.containers.run(_IMAGE, ["cat"], detach=True, stdin_open=True, network_mode="none", init=False)
    try:
        argv = ["python3", "-I", "-S", "-c", _PROGRAM]
        command = ["docker", "exec", container.id, *argv]
        warm, plain, by_sdk = [], [], []
        for _ in range(rounds + 1):
            warm.append(await _timed(lambda: sandbox.run(Command(code=_PROGRAM), limits=_LIMITS, fresh=True)))
            plain.append(
                await _timed(lambda: asyncio.to_thread(subprocess.run, command, capture_output=True, check=True))
            )
            by_sdk.append(await _timed(lambda: asyncio.to_thread(container.exec_run, argv)))
    finally:
        container.remove(force=True)
        await sandbox.close()
        client.close()
    return warm[1:], plain[1:], by_sdk[1:]


async def _fresh(backend: DockerBackend, *, rounds: int) -> list[float]:
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        sandbox = await backend.create()
        await sandbox.run(Command(code=_PROGRAM), limits=_LIMITS)
        times.append(time.perf_counter() - started)
        await sandbox.close()
    return times


async def _rate(backend: DockerBackend, *, seconds: float) -> float:
    """Returns executions per second in four warm containers at once."""
    sandboxes = await asyncio.gather(*(backend.create() for _ in range(4)))
    started = time.perf_counter()

    async def work(sandbox: Any) -> int:
        done = 0
        while time.perf_counter() - started < seconds:
            await sandbox.run(Command(code=_PROGRAM), limits=_LIMITS, fresh=True)
            done += 1
        return done

    done = sum(await asyncio.gather(*map(work, sandboxes)))
    rate = done / (time.perf_counter() - started)
    await asyncio.gather(*(sandbox.close() for sandbox in sandboxes))
    return float(f"{rate:.4g}")


async def _pool_waits(*, episodes: int) -> list[float]:
    """Returns seconds that episodes wait for a container when they come more slowly than containers start."""
    pool = SandboxPool(DockerBackend(DockerConfig(image=_IMAGE)), PoolConfig(size=6, warm=3))
    await pool.start()
    waits = []
    try:
        await asyncio.sleep(2.0)
        for _ in range(episodes):
            started = time.perf_counter()
            async with pool.lease() as sandbox:
                waits.append(time.perf_counter() - started)
                await sandbox.run(Command(code=_PROGRAM), limits=_LIMITS)
            await asyncio.sleep(0.6)
    finally:
        await pool.close()
    return waits


async def _timed(work: Callable[[], Awaitable[Any]]) -> float:
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started
