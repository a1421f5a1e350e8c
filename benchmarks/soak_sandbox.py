"""Runs thousands of good and hostile programs at once and looks for wrong results, leftovers, and growth.

python benchmarks/soak_sandbox.py [--quick] [--executions N] [--concurrency N]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import _report
from _leftovers import descendants, groups, leftovers
from _report import Target

from verl_agentic.base.errors import SandboxError
from verl_agentic.sandbox.boxes.namespaces_backend import NamespaceBackend
from verl_agentic.sandbox.interface import Command, CommandResult, Limits
from verl_agentic.sandbox.pools.sandbox_pool import PoolConfig, SandboxPool

LIMITS = Limits(wall_s=30.0, cpu_s=20, memory_mb=96, processes=16, output_bytes=10_000)
BRIEF = Limits(wall_s=0.3, cpu_s=20, memory_mb=96, processes=16, output_bytes=10_000)
_CLEAN = """
import os
print([f for d in ('.', '/tmp', '/dev/shm') for f in os.listdir(d)],
      [p for p in os.listdir('/proc') if p.isdigit() and int(p) not in (1, os.getpid())], len(os.environ))
"""
_DAEMON = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(60)\nprint({i})"
_KILLS = "import os, time\nif os.fork() == 0:\n    time.sleep(60)\nos.kill(-1, 9)\nprint('here')"
_FORKS = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass"


@dataclass(frozen=True)
class Kind:
    """One kind of program: how often, what, and what its result must be."""

    name: str
    weight: int
    command: Callable[[int], Command]
    is_right: Callable[[int, CommandResult], bool]
    limits: Limits = LIMITS
    cancel_after_s: float | None = None


def _says(text: str) -> Callable[[int, CommandResult], bool]:
    return lambda i, result: result.ok and result.stdout == text.format(i=i)


def _ends(exit_code: int) -> Callable[[int, CommandResult], bool]:
    return lambda _, result: result.exit_code == exit_code and not result.timed_out


def _timed_out(_: int, result: CommandResult) -> bool:
    return result.timed_out


KINDS = [
    Kind("prints", 30, lambda i: Command(code=f"print({i})"), _says("{i}\n")),
    Kind("clean", 15, lambda i: Command(code=_CLEAN), _says("[] [] 3\n")),
    Kind("stdin", 10, lambda i: Command(code="print(input())", stdin=f"{i}\n".encode()), _says("{i}\n")),
    Kind(
        "files",
        10,
        lambda i: Command(argv=["sh", "-c", "cat a b > c"], files={"a": b"%d" % i, "b": b"x" * 50_000}, outputs=["c"]),
        lambda i, result: result.files == {"c": b"%d" % i + b"x" * 50_000},
    ),
    Kind("environment", 5, lambda i: Command(argv=["sh", "-c", "echo $X"], env={"X": str(i)}), _says("{i}\n")),
    Kind(
        "raises", 5, lambda i: Command(code="1 / 0"), lambda _, r: "ZeroDivisionError" in r.stderr and r.exit_code == 1
    ),
    Kind("exits", 5, lambda i: Command(code=f"raise SystemExit({i % 200})"), lambda i, r: r.exit_code == i % 200),
    Kind("daemon", 4, lambda i: Command(code=_DAEMON.format(i=i)), _says("{i}\n")),
    Kind("leaves", 3, lambda i: Command(code="import os\nos._exit(7)"), _ends(7)),
    Kind("kills itself", 3, lambda i: Command(code="import os\nos.kill(os.getpid(), 9)"), _ends(-9)),
    Kind("kills all", 2, lambda i: Command(code=_KILLS), _says("here\n")),
    Kind(
        "memory",
        2,
        lambda i: Command(code="x = bytearray(1 << 30)"),
        lambda _, result: "MemoryError" in result.stderr or result.oom,
    ),
    Kind(
        "memory of several",
        1,
        lambda i: Command(code="import os\nfor _ in range(3):\n    os.fork()\nx = b'x' * (40 << 20)\nwhile True: pass"),
        lambda _, result: result.oom or result.timed_out or not result.ok,
        BRIEF,
    ),
    Kind(
        "fills the disk",
        2,
        lambda i: Command(code="with open('x', 'wb') as f:\n    for _ in range(200):\n        f.write(bytes(1 << 20))"),
        lambda _, result: not result.ok and not result.timed_out,
    ),
    Kind(
        "floods",
        2,
        lambda i: Command(code="import os\nfor _ in range(100):\n    os.write(1, b'x' * 65536)"),
        lambda _, result: result.ok and result.stdout_truncated and len(result.stdout) == 10_000,
    ),
    Kind("loops", 1, lambda i: Command(code="while True: pass"), _timed_out, BRIEF),
    Kind("forks without end", 1, lambda i: Command(code=_FORKS), _timed_out, BRIEF),
    Kind("is cancelled", 2, lambda i: Command(argv=["sleep", "60"]), lambda *_: False, cancel_after_s=0.05),
]


@dataclass
class Tally:
    """Results of the soak test."""

    done: Counter[str]
    wrong: list[str]


def main() -> int:
    """Runs the soak; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="500 executions")
    parser.add_argument("--executions", type=int, default=20_000)
    parser.add_argument("--concurrency", type=int, default=32)
    options = parser.parse_args()
    return asyncio.run(_soak(500 if options.quick else options.executions, options.concurrency))


async def _soak(executions: int, concurrency: int) -> int:
    groups_before = set(groups())
    backend = NamespaceBackend()
    pool = SandboxPool(backend, PoolConfig(size=8, warm=2, max_uses=500))
    await pool.start()
    started, tally, marks = time.monotonic(), Tally(Counter(), []), []
    kinds = random.Random(0).choices(KINDS, weights=[kind.weight for kind in KINDS], k=executions)
    work = iter(enumerate(kinds))

    async def worker() -> None:
        for number, kind in work:
            await _execute(pool, number, kind, tally)
            if (number + 1) % max(1, executions // 20) == 0:
                marks.append((_own_memory_mb(), len(os.listdir("/proc/self/fd")), _boxes_memory_mb()))
                _report.progress(
                    f"{number + 1} executions, {len(tally.wrong)} wrong, memory and descriptors {marks[-1]}"
                )

    await asyncio.gather(*(worker() for _ in range(concurrency)))
    took_s = time.monotonic() - started
    metrics = pool.metrics()
    await pool.close()
    left = await leftovers(groups_before)
    for problem in [*tally.wrong[:20], *left[:20]]:
        _report.progress(problem)
    early, late = marks[len(marks) // 4], marks[-1]
    return _report.report(
        "soak_sandbox",
        ratios={"memory_growth": round(late[0] / early[0], 3), "boxes_memory_growth": round(late[2] / early[2], 3)},
        figures={
            "executions": sum(tally.done.values()),
            "wrong_results": len(tally.wrong),
            "leftovers": len(left),
            "concurrency": concurrency,
            "executions_per_s": round(executions / took_s, 1),
            "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
            "memory_mb": late[0],
            "boxes_memory_mb": late[2],
            "descriptors_grown_by": late[1] - max(mark[1] for mark in marks[: len(marks) // 2 + 1]),
            "run_ms_p50": round(1000 * metrics["run_s_p50"], 2),
            "run_ms_p99": round(1000 * metrics["run_s_p99"], 2),
            "sandboxes_made": metrics["created"],
            **{f"num_{kind.replace(' ', '_')}": count for kind, count in sorted(tally.done.items())},
        },
        targets={
            "wrong_results": Target(bound=0, at_least=False),
            "leftovers": Target(bound=0, at_least=False),
            "memory_growth": Target(bound=1.1, at_least=False),
            "boxes_memory_growth": Target(bound=1.25, at_least=False),
            "descriptors_grown_by": Target(bound=8, at_least=False),
        },
    )


async def _execute(pool: SandboxPool, number: int, kind: Kind, tally: Tally) -> None:
    task = asyncio.create_task(pool.run(kind.command(number), limits=kind.limits))
    if kind.cancel_after_s is not None:
        await asyncio.sleep(kind.cancel_after_s)
        task.cancel()
    tally.done[kind.name] += 1
    try:
        result = await task
    except asyncio.CancelledError:
        if kind.cancel_after_s is None:
            raise
        return
    except SandboxError as error:
        tally.wrong.append(f"{kind.name}: {error}")
        return
    if not kind.is_right(number, result):
        tally.wrong.append(f"{kind.name}: {result}")


def _own_memory_mb() -> float:
    return _memory_mb(os.getpid())


def _boxes_memory_mb() -> float:
    """Returns the mean resident memory of zygote and boxes; programs that run are left out."""
    used = [_memory_mb(pid) for pid in descendants(os.getpid()) if _is_box(pid)]
    return round(sum(used) / max(1, len(used)), 2)


def _is_box(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    namespaced = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
    return len(namespaced) == 1 or namespaced[1:] == ["1"]


def _memory_mb(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return round(pages * resource.getpagesize() / 2**20, 2)


if __name__ == "__main__":
    sys.exit(main())
