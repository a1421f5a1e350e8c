"""Measures the sandboxes against a plain subprocess, cold bubblewrap, `docker exec` and verl's `prime_code` runner.

All sides alternate in one run. `warm_vs_subprocess_latency`: a one-line program in a warm namespace sandbox over
`python -I -S -c`. `landlock_vs_namespaces_latency`: the same program in a warm Landlock sandbox over the namespace one.
`warm_vs_cold_bwrap_throughput`: executions per second over those of bubblewrap started for each.
`code_tests_vs_prime_code`: time of verl's runner, called as verl's reward function calls it, over ours on the same 40
solutions with 10 tests each, one of which hangs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from _report import Target, median, progress, report

from verl_agentic.base.errors import SandboxUnavailableError
from verl_agentic.graders.code.run_tests import CodeTests, run_tests
from verl_agentic.sandbox.boxes.landlock_backend import LandlockBackend
from verl_agentic.sandbox.boxes.namespaces_backend import NamespaceBackend
from verl_agentic.sandbox.interface import Command, Limits
from verl_agentic.sandbox.pools.sandbox_pool import PoolConfig, SandboxPool

_PROGRAM = "print(sum(range(1000)))"
_PYTHON = os.path.realpath(sys.executable)
_LIMITS = Limits(wall_s=30.0)
_BWRAP = [
    *("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--ro-bind", "/usr", "/usr"),
    *("--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"),
    *(
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
        "--tmpfs",
        "/work",
        "--chdir",
        "/work",
        "--cap-drop",
        "ALL",
    ),
]


@dataclass
class Result:
    """Ratios and figures of the report."""

    ratios: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def missing(self, kind: str, key: str, reason: str) -> None:
        """Notes a figure that could not be taken."""
        getattr(self, kind)[key] = None
        self.reasons[key] = reason


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repeats: to see that it runs")
    args = parser.parse_args()
    result = asyncio.run(_measure(quick=args.quick))
    targets = {
        "warm_vs_subprocess_latency": Target(bound=0.5, at_least=False),
        "landlock_vs_namespaces_latency": Target(bound=1.0, at_least=False),
        "warm_vs_cold_bwrap_throughput": Target(bound=4.0),
        "docker_warm_vs_exec_latency": Target(bound=0.1, at_least=False),
        "docker_fresh_ms": Target(bound=300.0, at_least=False),
        "pool_wait_ms": Target(bound=20.0, at_least=False),
        "code_tests_vs_prime_code": Target(bound=5.0),
        "session_call_ms": Target(bound=5.0, at_least=False),
    }
    return report("sandbox", ratios=result.ratios, figures=result.figures, targets=targets, reasons=result.reasons)


async def _measure(*, quick: bool) -> Result:
    result = Result()
    pool = SandboxPool(NamespaceBackend(), PoolConfig(size=8, warm=4))
    await pool.start()
    try:
        await _latency(pool, result, rounds=3 if quick else 40)
        await _landlock(pool, result, rounds=3 if quick else 200)
        await _throughput(pool, result, rounds=1 if quick else 5, seconds=0.5 if quick else 2.0)
        await _session(pool, result, calls=20 if quick else 100)
        await _waits(pool, result, episodes=10 if quick else 60)
        await _code_tests(pool, result, solutions=10 if quick else 1_000, compared=5 if quick else 40)
    finally:
        await pool.close()
    await asyncio.to_thread(_docker, result, quick=quick)
    return result


async def _latency(pool: SandboxPool, result: Result, *, rounds: int) -> None:
    progress("latency of one line of Python")
    sandboxed, plain = [], []
    for _ in range(rounds + 1):
        sandboxed.append(await _timed(lambda: pool.run(Command(code=_PROGRAM), limits=_LIMITS)))
        plain.append(await _timed(lambda: asyncio.to_thread(_plain)))
    result.figures["warm_ms"] = median(sandboxed[1:]) * 1e3
    result.figures["subprocess_ms"] = median(plain[1:]) * 1e3
    result.ratios["warm_vs_subprocess_latency"] = median([a / b for a, b in zip(sandboxed[1:], plain[1:], strict=True)])


async def _landlock(pool: SandboxPool, result: Result, *, rounds: int) -> None:
    progress("latency of one line of Python by Landlock and by namespaces")
    other = SandboxPool(LandlockBackend(), PoolConfig(size=1, warm=0))
    pairs = []
    try:
        await other.start()
        for _ in range(rounds + 1):
            ours = await _timed(lambda: other.run(Command(code=_PROGRAM), limits=_LIMITS))
            theirs = await _timed(lambda: pool.run(Command(code=_PROGRAM), limits=_LIMITS))
            pairs.append((ours, theirs))
    except SandboxUnavailableError as cause:
        return result.missing("ratios", "landlock_vs_namespaces_latency", str(cause))
    finally:
        await other.close()
    result.figures["landlock_warm_ms"] = median([ours for ours, _ in pairs[1:]]) * 1e3
    result.ratios["landlock_vs_namespaces_latency"] = median([ours / theirs for ours, theirs in pairs[1:]])


async def _throughput(pool: SandboxPool, result: Result, *, rounds: int, seconds: float) -> None:
    progress("executions per second at concurrency 8")
    threads = ThreadPoolExecutor(8)

    async def cold() -> None:
        await asyncio.get_running_loop().run_in_executor(threads, _bwrap)

    has_bwrap = shutil.which("bwrap") is not None
    warm_rates, cold_rates = [], []
    for _ in range(rounds):
        warm_rates.append(await _rate(lambda: pool.run(Command(code=_PROGRAM), limits=_LIMITS), seconds))
        if has_bwrap:
            cold_rates.append(await _rate(cold, seconds))
    result.figures["warm_per_s"] = median(warm_rates)
    if has_bwrap:
        result.figures["cold_bwrap_per_s"] = median(cold_rates)
        result.ratios["warm_vs_cold_bwrap_throughput"] = median(
            [a / b for a, b in zip(warm_rates, cold_rates, strict=True)]
        )
    else:
        result.missing("ratios", "warm_vs_cold_bwrap_throughput", "bubblewrap is not installed")


async def _session(pool: SandboxPool, result: Result, *, calls: int) -> None:
    progress("calls of a session")
    async with pool.lease() as sandbox:
        session = await sandbox.open_session("python", limits=_LIMITS)
        await session.run("x = 0", wall_s=10)
        times = [await _timed(lambda: session.run("x += 1", wall_s=10)) for _ in range(calls)]
        assert (await session.run("x", wall_s=10)).stdout == f"{calls}\n"
    result.figures["session_call_ms"] = median(times) * 1e3


async def _waits(pool: SandboxPool, result: Result, *, episodes: int) -> None:
    progress("wait of an episode for its sandbox")
    waits = []
    for _ in range(episodes):
        started = time.perf_counter()
        async with pool.lease() as sandbox:
            waits.append(time.perf_counter() - started)
            await sandbox.run(Command(code=_PROGRAM), limits=_LIMITS)
        await asyncio.sleep(0.05)  # slower than sandboxes start
    result.figures["pool_wait_ms"] = median(waits) * 1e3


async def _code_tests(pool: SandboxPool, result: Result, *, solutions: int, compared: int) -> None:
    progress(f"{solutions} solutions with 10 tests each")
    tasks = [_task(index) for index in range(solutions)]
    result.figures["code_tests_per_s"] = solutions / await _timed(lambda: _ours(pool, tasks))
    progress(f"{compared} of them, here and by verl's prime_code")
    sample = tasks[:compared]
    started = time.perf_counter()
    ours_passed = await _ours(pool, sample)
    ours_s = time.perf_counter() - started
    started = time.perf_counter()
    theirs_passed = await asyncio.to_thread(_prime_code, sample)
    theirs_s = time.perf_counter() - started
    assert ours_passed == theirs_passed, "the runners disagree"
    result.figures |= {"compared_s": ours_s, "compared_prime_code_s": theirs_s, "compared_solutions": compared}
    result.ratios["code_tests_vs_prime_code"] = float(f"{theirs_s / ours_s:.4g}")


async def _ours(pool: SandboxPool, tasks: list[tuple[str, CodeTests]]) -> list[bool]:
    """Returns which solutions pass all tests; with prime_code's 5 s for each test, up to the first failure."""
    reports = await asyncio.gather(*(run_tests(*task, pool, test_s=5.0, stop_at_failure=True) for task in tasks))
    return [one.all_passed == 1.0 for one in reports]


def _task(index: int) -> tuple[str, CodeTests]:
    """Returns a solution and tests: most are right, some wrong, some crash, a few hang."""
    inputs = [f"{index} {n}\n" for n in range(10)]
    tests = CodeTests(inputs=inputs, outputs=[str(index * n + sum(range(n))) for n in range(10)])
    right = "a, b = map(int, input().split())\nprint(a * b + sum(range(b)))"
    wrong = "a, b = map(int, input().split())\nprint(a * b)"
    crash = "a, b = map(int, input().split())\nprint([0][b])"
    hang = "import time\ntime.sleep(1_000)"
    kinds = [right] * 24 + [wrong] * 10 + [crash] * 5 + [hang]
    return kinds[(index * 7) % len(kinds)], tests


def _prime_code(tasks: list[tuple[str, CodeTests]]) -> list[bool]:
    from verl.utils.reward_score import prime_code

    cases = [(code, {"inputs": list(tests.inputs), "outputs": list(tests.outputs)}) for code, tests in tasks]
    return [float(prime_code.compute_score(code, case, continuous=True)[0]) == 1.0 for code, case in cases]


def _docker(result: Result, *, quick: bool) -> None:
    from _sandbox_docker import measure

    for kind, key, value, reason in measure(quick=quick):
        getattr(result, kind)[key] = value
        if value is None:
            result.reasons[key] = reason


def _plain() -> None:
    subprocess.run([_PYTHON, "-I", "-S", "-c", _PROGRAM], capture_output=True, env={}, check=True)


def _bwrap() -> None:
    prefix = os.path.realpath(sys.base_prefix)
    own = [] if prefix.startswith("/usr") else ["--ro-bind", prefix, prefix]
    command = [*_BWRAP, *own, _PYTHON, "-I", "-S", "-c", _PROGRAM]
    subprocess.run(command, capture_output=True, env={"PATH": os.environ["PATH"]}, check=True)


async def _timed(work: Callable[[], Awaitable[Any]]) -> float:
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started


async def _rate(work: Callable[[], Awaitable[Any]], seconds: float) -> float:
    """Returns how often per second eight workers can do it."""
    done, end = 0, time.perf_counter() + seconds

    async def worker() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await work()
            done += 1

    started = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(8)))
    return done / (time.perf_counter() - started)


if __name__ == "__main__":
    sys.exit(main())
