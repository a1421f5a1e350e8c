"""Measures what episodes of software engineering cost besides the model and the tests, on the bundled sample.

`setup_ms`: sandbox, repository, requirements of the tests, `git commit` and snapshot. `reset_ms`: back to the snapshot.
`grade_overhead_ms`: grading of a wrong change, which runs the tests once, without the time of `python -m pytest` on the
same tests in a sandbox that exists. `grade_solved_ms`: grading of the solution with all its poisoned runs.
`setup_vs_docker`: the setup over the same files, commit and copy in a fresh container of an engine, by its exec.

Then episodes run at once, each with a repository and a grading: good ones, and ones whose tests hang or fork, whose
changes fill the disk, and whose sandbox is killed. `lost`: episodes without the right verdict. `leftovers`: processes,
mounts, folders, control groups and tasks that stay.

    python benchmarks/swe.py [--quick] [--soak N]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from _leftovers import groups, leftovers
from _report import Target, median, progress, report
from _swe_docker import docker_setup_s

from verl_agentic.base.errors import SandboxError, SandboxUnavailableError
from verl_agentic.sandbox.boxes.namespaces_backend import NamespaceBackend, NamespaceConfig
from verl_agentic.sandbox.interface import REPOSITORY_LIMITS, Command, Sandbox, Tree
from verl_agentic.sandbox.pools.sandbox_pool import PoolConfig, SandboxPool
from verl_agentic.swe.grading.accepted import changes
from verl_agentic.swe.grading.grade import grade
from verl_agentic.swe.grading.repo_task import RepoTask, TaskStore, read_tree
from verl_agentic.swe.grading.run_tests import LIMITS
from verl_agentic.swe.grading.tree_diffs import changed_by
from verl_agentic.swe.sample_store import sample_store

sys.path.insert(0, str(Path(__file__).parents[1]))
from envs.swe.repo_box import BEGIN, FOLDER, RepoBox

_AT_ONCE, _ATTEMPTS = 32, 3
_LIMITS = replace(LIMITS, cpu_s=10)
_TIMES = ("setup_ms", "reset_ms", "pytest_ms", "grade_overhead_ms", "grade_solved_ms")
_FIGURES = (*_TIMES, "episodes", "lost", "leftovers")
_FAULTS: Mapping[str, str] = {
    "hangs": "while True:\n    pass\n",
    "forks": "import os\nfor _ in range(500):\n    try:\n        os.fork()\n    except OSError:\n        pass\n",
    "fills": "open('/work/big', 'wb').write(bytes(1 << 20) * 300)\n",
    "floods": "import sys\nfor _ in range(300):\n    sys.__stdout__.write('x' * 1_000_000)\n",
}
_KINDS = ("good", "good", "good", "wrong", "killed", *_FAULTS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rounds and episodes: to see that it runs")
    parser.add_argument("--soak", type=int, default=None, metavar="N", help=f"run N episodes; default {_AT_ONCE}")
    args = parser.parse_args()
    rounds, episodes = (1, len(_KINDS)) if args.quick else (20, args.soak or _AT_ONCE)
    reasons: dict[str, str] = {}
    try:
        figures: dict[str, float | None] = {**asyncio.run(_measure(rounds=rounds, episodes=episodes))}
    except SandboxUnavailableError as cause:
        figures, reasons = dict.fromkeys(_FIGURES), dict.fromkeys(_FIGURES, str(cause))
    task, store = _sample()
    docker_s, reason = docker_setup_s(store.base(task), store.site(task), begin=BEGIN, rounds=rounds)
    setup_ms = figures["setup_ms"]
    ratio = None if docker_s is None or setup_ms is None else setup_ms / docker_s / 1e3
    figures["docker_setup_ms"] = None if docker_s is None else docker_s * 1e3
    if docker_s is None:
        reasons["docker_setup_ms"] = reason
    if ratio is None:
        reasons["setup_vs_docker"] = reason or reasons.get("setup_ms", "")
    targets = {
        "setup_ms": Target(bound=300.0, at_least=False),
        "reset_ms": Target(bound=50.0, at_least=False),
        "grade_overhead_ms": Target(bound=300.0, at_least=False),
        "setup_vs_docker": Target(bound=0.3, at_least=False),
        "lost": Target(bound=0, at_least=False),
        "leftovers": Target(bound=0, at_least=False),
    }
    return report("swe", ratios={"setup_vs_docker": ratio}, figures=figures, targets=targets, reasons=reasons)


def _sample() -> tuple[RepoTask, TaskStore]:
    store = sample_store()
    return next(iter(store.tasks())), store


async def _measure(*, rounds: int, episodes: int) -> dict[str, float]:
    task, store = _sample()
    before = set(groups())
    pool = SandboxPool(NamespaceBackend(NamespaceConfig(disk_mb=256)), PoolConfig(size=256, warm=0))
    await pool.start()
    try:
        figures = await _times(pool, task, store, rounds=rounds)
        lost = await _soak(pool, task, store, episodes=episodes)
    finally:
        await pool.close()
    left = await leftovers(before)
    for one in (*lost, *left):
        progress(one)
    return {**figures, "episodes": episodes, "lost": len(lost), "leftovers": len(left)}


async def _times(pool: SandboxPool, task: RepoTask, store: TaskStore, *, rounds: int) -> dict[str, float]:
    progress("setup, reset and grading")
    site = store.site(task)
    assert site is not None
    trees = [Tree(source=store.base(task), at=FOLDER), Tree(source=site, at="site", read_only=True)]
    solution = changed_by(read_tree(store.base(task)), task.patch)
    wrong: dict[str, bytes | None] = {path: (text or b"") + b"\n" for path, text in _wrong(task, store).items()}
    setups, resets, tests, gradings, solved = [], [], [], [], []
    for _ in range(rounds + 1):
        started = time.perf_counter()
        async with pool.lease(trees=trees) as sandbox:
            await _run(sandbox, ["bash", "-c", f"cd {FOLDER} && {BEGIN}"])
            number = await sandbox.snapshot()
            setups.append(time.perf_counter() - started)
            started = time.perf_counter()
            await sandbox.reset(number)
            resets.append(time.perf_counter() - started)
            await sandbox.put_tree(store.hidden_tests(task), at=FOLDER)
            started = time.perf_counter()
            words = ["-q", "-p", "no:cacheprovider", *task.targets]
            await _run(sandbox, ["bash", "-c", f"cd {FOLDER} && python -m pytest {' '.join(words)}"], is_checked=False)
            tests.append(time.perf_counter() - started)
        started = time.perf_counter()
        assert not (await grade(task, store, wrong, pool)).resolved
        gradings.append(time.perf_counter() - started)
        started = time.perf_counter()
        assert (await grade(task, store, solution, pool)).resolved
        solved.append(time.perf_counter() - started)
    overheads = [grading - plain for grading, plain in zip(gradings, tests, strict=True)]
    values = (setups, resets, tests, overheads, solved)
    return {name: median(times[1:]) * 1e3 for name, times in zip(_TIMES, values, strict=True)}


def _wrong(task: RepoTask, store: TaskStore) -> dict[str, bytes | None]:
    """Returns the files of the solution as they are before it."""
    base = read_tree(store.base(task))
    return {path: base.get(path) for path in changed_by(base, task.patch)}


async def _run(sandbox: Sandbox, argv: Sequence[str], *, is_checked: bool = True) -> None:
    env = {"PYTHONPATH": f"/work/{FOLDER}:/work/site", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = await sandbox.run(Command(argv=argv, env=env), limits=REPOSITORY_LIMITS)
    assert done.ok or (not is_checked and done.exit_code == 1), done


async def _soak(pool: SandboxPool, task: RepoTask, store: TaskStore, *, episodes: int) -> list[str]:
    """Returns the episodes without the right verdict."""
    progress(f"{episodes} episodes, {_AT_ONCE} at once")
    seats = asyncio.Semaphore(_AT_ONCE)

    async def play(number: int) -> str | None:
        kind = _KINDS[number % len(_KINDS)]
        async with seats:
            resolved = await _until_graded(pool, task, store, kind)
        return None if resolved == (kind in ("good", "killed")) else f"episode {number} ({kind}): resolved {resolved}"

    return [one for one in await asyncio.gather(*map(play, range(episodes))) if one is not None]


async def _until_graded(pool: SandboxPool, task: RepoTask, store: TaskStore, kind: str) -> bool | None:
    """Plays an episode; one whose sandbox dies is played again, as the episode loop does. None if all attempts fail."""
    for _ in range(_ATTEMPTS):
        try:
            return await _episode(pool, task, store, kind)
        except SandboxError as cause:
            progress(f"{kind}: once more, {cause}")
            kind = "good" if kind == "killed" else kind
    return None


async def _episode(pool: SandboxPool, task: RepoTask, store: TaskStore, kind: str) -> bool:
    """Plays an episode. Raises SandboxError if its sandbox died."""
    base = read_tree(store.base(task))
    files = changed_by(base, task.patch) if kind in ("good", "killed") else _wrong(task, store)
    fault = _FAULTS.get(kind, "")
    repo = RepoBox(pool, base=store.base(task), site=store.site(task), limits=REPOSITORY_LIMITS)
    try:
        await repo.open()
        if kind == "killed":
            killed: Any = repo._sandbox
            killed._life.kill()
        for path, text in files.items():
            await repo.write(path, (text or b"") + fault.encode())
        taken = await repo.taken()
    finally:
        await repo.close()
    return (await grade(task, store, changes(base, taken.files), pool, skipped=taken.skipped, limits=_LIMITS)).resolved


if __name__ == "__main__":
    sys.exit(main())
