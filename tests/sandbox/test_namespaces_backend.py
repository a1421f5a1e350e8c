"""Behaviour of the backend `namespaces` that `landlock` does not share; `test_boxes.py` tests what both do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from boxes import LIMITS, python, started

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.sandbox.boxes.box_client import BoxClient
from verl_agentic.sandbox.boxes.namespaces_backend import NamespaceBackend, NamespaceConfig
from verl_agentic.sandbox.interface import Command, Limits, Sandbox
from verl_agentic.sandbox.pools.sandbox_pool import PoolConfig, SandboxPool

HASH = """
import hashlib, os
digest = hashlib.sha256()
for folder, names, files in os.walk("/work"):
    names.sort()
    for name in sorted(names + files):
        path = os.path.join(folder, name)
        status = os.lstat(path)
        digest.update(repr((path, status.st_mode, status.st_uid, status.st_mtime_ns, status.st_size)).encode())
        if os.path.islink(path):
            digest.update(os.readlink(path).encode())
        elif os.path.isfile(path):
            digest.update(open(path, "rb").read())
print(digest.hexdigest())
"""


@pytest.fixture
async def backend() -> AsyncIterator[NamespaceBackend]:
    backend = await started(NamespaceBackend())
    yield backend
    await backend.close()


async def test_code_that_takes_its_sandbox_down_by_memory_gets_results_not_errors(backend: NamespaceBackend) -> None:
    if not backend._use_groups:
        pytest.skip("without control groups a box cannot run out of memory")
    limits = Limits(wall_s=20.0, memory_mb=40)
    sandbox = await backend.create()
    fill = (
        "import os\nfor d in ('/tmp', '/work', '/dev/shm'):\n    with open(d + '/x', 'wb') as f:\n        while True:\n"
    )
    fill += "            f.write(bytes(1 << 20))"
    results = [await sandbox.run(Command(code=fill), limits=limits) for _ in range(4)]
    assert not any(result.ok for result in results) and any(result.oom for result in results)
    await sandbox.close()


async def test_network_is_off_also_where_the_backend_has_it() -> None:
    backend = NamespaceBackend(NamespaceConfig(network=True))
    await backend.start()
    sandbox = await backend.create()
    try:
        names = "import os\nprint([l.split(':')[0].strip() for l in open('/proc/net/dev').readlines()[2:]])"
        assert await python(sandbox, names) == await python(sandbox, names, fresh=True) == "['lo']\n"
        session = await sandbox.open_session("python", limits=LIMITS)
        assert (await session.run(names, wall_s=10.0)).stdout == "['lo']\n"
        await session.close()
        ours = [line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]]
        assert await python(sandbox, names, Limits(wall_s=20.0, network=True)) == f"{ours}\n"
    finally:
        await sandbox.close()
        await backend.close()


@pytest.mark.slow
async def test_reset_brings_back_a_snapshot_to_the_bit_a_hundred_times(sandbox: Sandbox) -> None:
    setup = (
        "import os\nos.makedirs('a/b')\nopen('a/b/c', 'wb').write(os.urandom(100_000))\nos.symlink('a/b/c', 'link')\n"
        "open('run.sh', 'w').write('x')\nos.chmod('run.sh', 0o755)\nos.truncate('a/b/c', 10_000_000)\nos.mkdir('empty')"
    )
    await python(sandbox, setup)
    before = await python(sandbox, HASH)
    number = await sandbox.snapshot()
    hashes = set()
    for turn in range(100):
        wreck = "import os, shutil\nshutil.rmtree('a')\nos.remove('link')\nopen('new', 'w').write('x')"
        await python(sandbox, wreck if turn % 2 else "open('a/b/c', 'r+b').write(b'other')")
        await sandbox.reset(number)
        hashes.add(await python(sandbox, HASH))
    assert hashes == {before}
    await sandbox.reset()
    assert await python(sandbox, "import os\nprint(os.listdir('.'))") == "[]\n"
    with pytest.raises(ConfigError, match="snapshots 1 to 1"):
        await sandbox.reset(2)


async def test_a_snapshot_of_holes_and_of_too_much_is_bounded(backend: NamespaceBackend) -> None:
    sandbox = await backend.create()
    await python(
        sandbox, "import os\nfor i in range(50):\n    open(f'{i}', 'w').close()\n    os.truncate(f'{i}', 60 << 20)"
    )
    number = await sandbox.snapshot()
    await sandbox.reset(number)
    assert await python(sandbox, "import os\nprint(os.path.getsize('7') >> 20)") == "60\n"
    deep = "import os\nfor _ in range(900):\n    os.mkdir('deep-folder')\n    os.chdir('deep-folder')"
    await python(sandbox, deep)
    with pytest.raises(DataError, match="kept"):
        await sandbox.snapshot()
    assert await python(sandbox, "print(1)") == "1\n"
    await sandbox.close()


async def test_files_that_find_no_space_are_a_result(sandbox: Sandbox) -> None:
    await sandbox.run(Command(argv=["sh", "-c", "head -c 100M /dev/zero > full"]), limits=Limits(file_mb=200))
    result = await sandbox.run(Command(code="print(1)", files={"x": bytes(1 << 20)}), limits=LIMITS)
    assert result.exit_code == 1 and "No space left" in result.stderr


async def test_sandboxes_run_side_by_side_and_see_nothing_of_each_other(backend: NamespaceBackend) -> None:
    sandboxes = await asyncio.gather(*(backend.create() for _ in range(8)))
    code = "import os, time\nopen('mine', 'w').write('{}')\ntime.sleep(0.3)\n"
    code += "print(open('mine').read(), os.listdir('/tmp'))"
    outputs = await asyncio.gather(*(python(s, code.format(i)) for i, s in enumerate(sandboxes)))
    assert outputs == [f"{i} []\n" for i in range(8)]
    await asyncio.gather(*(sandbox.close() for sandbox in sandboxes))


async def test_a_pool_gives_no_sandbox_that_has_died_while_it_waited() -> None:
    pool = SandboxPool(NamespaceBackend(), PoolConfig(size=2, warm=1))
    await pool.start()
    try:
        assert (await pool.run(Command(code="print(1)"), limits=LIMITS)).stdout == "1\n"
        while not pool._warm:
            await asyncio.sleep(0.01)
        for sandbox in (*(seat.sandbox for seat in pool._seats), *pool._warm):
            assert isinstance(sandbox, BoxClient)
            sandbox._life.kill()
            while sandbox.is_usable:
                await asyncio.sleep(0.01)
        assert (await pool.run(Command(code="print(2)"), limits=LIMITS)).stdout == "2\n"
        async with pool.lease() as fresh:
            assert (await fresh.run(Command(code="print(3)"), limits=LIMITS)).stdout == "3\n"
    finally:
        await pool.close()
