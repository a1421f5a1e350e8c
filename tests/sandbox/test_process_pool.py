"""One pool per process, from any event loop."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from verl_agentic.base.errors import ConfigError, SandboxError
from verl_agentic.sandbox.interface import Command, Limits
from verl_agentic.sandbox.pools.process_pool import SharedPool, shared_pool
from verl_agentic.sandbox.pools.sandbox_pool import PoolConfig

LIMITS = Limits(wall_s=20.0)


def pool() -> SharedPool:
    return shared_pool("local", at_least="none", config=PoolConfig(size=2, warm=0), is_trusted=True)


def test_loops_and_threads_share_one_pool_and_its_limit() -> None:
    code = "import time; start = time.time(); time.sleep(0.2); print(start, time.time())"
    spans: list[tuple[float, ...]] = []

    async def run() -> None:
        for result in await asyncio.gather(*(pool().run(Command(code=code), limits=LIMITS) for _ in range(3))):
            spans.append(tuple(map(float, result.stdout.split())))

    threads = [threading.Thread(target=lambda: asyncio.run(run())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(spans) == 6
    assert max(sum(start <= moment < end for start, end in spans) for moment, _ in spans) == 2


async def test_a_lease_is_a_whole_sandbox_and_ends_with_the_block() -> None:
    async with pool().lease() as sandbox:
        await sandbox.run(Command(code="open('f', 'w').write('1')"), limits=LIMITS)
        snapshot = await sandbox.snapshot()
        await sandbox.reset()
        assert (await sandbox.run(Command(argv=["ls"]), limits=LIMITS)).stdout == ""
        await sandbox.reset(snapshot)
        session = await sandbox.open_session("bash", limits=LIMITS)
        assert (await session.run("ls", wall_s=10)).stdout == "f\n"
        await session.close()
    assert (await pool().metrics())["running"] == 0
    with pytest.raises(SandboxError, match="closed"):
        await sandbox.run(Command(code="1"), limits=LIMITS)


async def test_a_call_that_is_cancelled_frees_its_place() -> None:
    calls = [asyncio.create_task(pool().run(Command(code="import time; time.sleep(60)"), limits=Limits(wall_s=90)))
             for _ in range(2)]  # fmt: skip
    while (await pool().metrics())["running"] < 2:
        await asyncio.sleep(0.02)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert (await asyncio.wait_for(pool().run(Command(code="print(1)"), limits=LIMITS), 15)).stdout == "1\n"


def test_other_arguments_are_another_pool_and_a_weaker_backend_is_refused() -> None:
    assert pool() is pool()
    other = shared_pool("local", at_least="none", config=PoolConfig(size=1, warm=0), is_trusted=True)
    assert other is not pool()
    with pytest.raises(ConfigError, match="at_least"):
        shared_pool("local")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder for temporary files that all users may enter, as `/tmp`; `tmp_path` lies in one of this user alone."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.mark.sample(1)
@pytest.mark.parametrize("backend", ["auto", "local"])
def test_at_the_end_of_the_process_nothing_is_left_and_no_thread_is_started(backend: str, open_folder: Path) -> None:
    code = (
        "import asyncio, os, threading\n"
        "from verl_agentic.sandbox.interface import Command, Limits\n"
        "from verl_agentic.sandbox.pools.process_pool import shared_pool\n"
        "def refuse(*_): raise RuntimeError('no new thread at interpreter shutdown')\n"  # as Python 3.12 does
        "threading._register_atexit(lambda: setattr(threading, '_start_new_thread', refuse))\n"
        "async def main():\n"
        f"    pool = shared_pool({backend!r}, at_least='none')\n"
        "    context = pool.lease()\n"
        "    sandbox = await context.__aenter__()\n"  # never left
        "    session = await sandbox.open_session('bash', limits=Limits())\n"
        "    await session.run('sleep 600 &', wall_s=10)\n"
        "    print((await pool.run(Command(code='print(7)'), limits=Limits())).stdout)\n"
        "    global kept\n"
        "    kept = context\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={"TMPDIR": str(open_folder), "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)},
        check=False,
    )
    assert done.stdout.strip() == "7" and done.returncode == 0, done.stderr
    assert "Exception" not in done.stderr and "Error" not in done.stderr, done.stderr
    assert list(open_folder.iterdir()) == []
