"""What the backend `namespaces` keeps of the contract in `sandbox.base`."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from escape_leaks import Standing, descendants, wait_for_nothing_left

from verl_agentic.errors import ConfigError, SandboxError, SandboxUnavailableError
from verl_agentic.sandbox import cgroups, reaper
from verl_agentic.sandbox.base import Command, Limits, Sandbox
from verl_agentic.sandbox.box_client import BoxClient
from verl_agentic.sandbox.namespaces import NamespaceBackend, NamespaceConfig
from verl_agentic.sandbox.pool import PoolConfig, SandboxPool

LIMITS = Limits(wall_s=20.0)
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
    backend = NamespaceBackend()
    try:
        await backend.start()
    except SandboxUnavailableError as reason:
        pytest.skip(str(reason))
    yield backend
    await backend.close()


@pytest.fixture
async def sandbox(backend: NamespaceBackend) -> AsyncIterator[Sandbox]:
    sandbox = await backend.create()
    yield sandbox
    await sandbox.close()


async def _python(sandbox: Sandbox, code: str, limits: Limits = LIMITS, **options: object) -> str:
    fresh = bool(options.pop("fresh", False))
    result = await sandbox.run(Command(code=code, **options), limits=limits, fresh=fresh)  # type: ignore[arg-type]
    assert result.ok, result
    return result.stdout


async def test_code_and_programs_run_with_stdin_files_and_environment(sandbox: Sandbox) -> None:
    command = Command(
        argv=["sh", "-c", 'cat; cat in/a; echo "$GREETING"; echo oops >&2; printf x > out; exit 3'],
        stdin=b"1\n",
        files={"in/a": b"2\n"},
        env={"GREETING": "hi"},
        outputs=["out", "not-there", "in"],
    )
    result = await sandbox.run(command, limits=LIMITS)
    assert (result.stdout, result.stderr, result.exit_code) == ("1\n2\nhi\n", "oops\n", 3)
    assert result.files == {"out": b"x"} and not result.ok and not result.timed_out
    assert await _python(sandbox, "import sys\nprint(sys.stdin.read() * 2)", stdin=b"ab") == "abab\n"


async def test_the_environment_holds_nothing_of_the_host(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "secret")
    assert await _python(sandbox, "import os\nprint(sorted(os.environ))") == "['HOME', 'LANG', 'PATH']\n"


async def test_large_files_and_outputs_arrive_whole(sandbox: Sandbox) -> None:
    data = os.urandom(5_000_000)
    command = Command(argv=["cp", "a", "b"], files={"a": data}, stdin=data, outputs=["b", "a"])
    for fresh in (False, True):
        result = await sandbox.run(command, limits=LIMITS, fresh=fresh)
        assert result.ok and result.files == {"a": data, "b": data}


async def test_random_numbers_differ_from_one_execution_to_the_next(sandbox: Sandbox) -> None:
    code = "import random\nprint(random.random(), random.gauss(0, 1), random.getrandbits(64))"
    seen = [await _python(sandbox, code, fresh=fresh) for fresh in (False, True, True)]
    for _ in range(2):
        session = await sandbox.open_session("python", limits=LIMITS)
        seen.append((await session.run(code, wall_s=10.0)).stdout)
        await session.close()
    assert len(set(seen)) == 5


async def test_what_code_does_to_its_streams_and_environment_ends_with_it(sandbox: Sandbox) -> None:
    spoil = (
        "import os, sys\nfor n in range(3):\n    os.set_blocking(n, False)\nos.environ['LEFT'] = 'x'\nsys.path[:] = []"
    )
    look = "import os\nprint([os.get_blocking(n) for n in range(3)], sorted(os.environ), os.listdir('/proc/self/fd'))"
    for fresh in (False, True):
        await _python(sandbox, spoil, fresh=fresh)
        expected = "[True, True, True] ['HOME', 'LANG', 'PATH'] ['0', '1', '2', '3']\n"  # 3: the folder that is listed
        assert await _python(sandbox, look, fresh=fresh) == expected
        assert await _python(sandbox, look, fresh=fresh, stdin=b"x") == expected


async def test_output_beyond_what_pipes_hold_arrives_whole_and_in_time(sandbox: Sandbox) -> None:
    limits = Limits(wall_s=20.0, output_bytes=1 << 20)
    code = "import sys\nprint(len(sys.stdin.read()))\nprint('y' * 300_000, file=sys.stderr)\nprint('x' * 600_000)"
    for size in (0, 10, 300_000):
        result = await sandbox.run(Command(code=code, stdin=b"z" * size), limits=limits, fresh=True)
        assert result.stdout == f"{size}\n" + "x" * 600_000 + "\n" and result.stderr == "y" * 300_000 + "\n"
        assert not result.truncated and result.wall_s < 5


async def test_texts_of_other_types_are_taken_for_what_they_are(sandbox: Sandbox) -> None:
    class Text(str):
        """As NumPy's, which data sets are full of."""

    command = Command(code=Text("import os\nprint(os.environ['A'], open('f').read())"), env={Text("A"): Text("\u00e4")})
    result = await sandbox.run(replace(command, files={Text("f"): b"1"}, outputs=[Text("f")]), limits=LIMITS)
    assert (result.stdout, result.files) == ("\u00e4 1\n", {"f": b"1"})


async def test_files_stay_between_runs_and_fresh_runs_share_none(sandbox: Sandbox) -> None:
    await _python(sandbox, "open('kept', 'w').write('1')")
    await _python(sandbox, "import os\nassert not os.listdir('.')\nopen('own', 'w').write('2')", fresh=True)
    assert await _python(sandbox, "import os\nprint(os.listdir('.'))") == "['kept']\n"


async def test_a_program_that_cannot_start_ends_as_in_a_shell(sandbox: Sandbox) -> None:
    result = await sandbox.run(Command(argv=["no-such-program"]), limits=LIMITS)
    assert result.exit_code == 127 and "no-such-program" in result.stderr
    result = await sandbox.run(Command(argv=["/etc/passwd"]), limits=LIMITS)
    assert result.exit_code == 126


async def test_deadline_kills_and_the_sandbox_goes_on(sandbox: Sandbox) -> None:
    started = time.monotonic()
    result = await sandbox.run(Command(argv=["sleep", "60"]), limits=Limits(wall_s=0.5))
    assert result.timed_out and result.signal_name == "SIGKILL" and 0.5 <= result.wall_s < 5
    assert time.monotonic() - started < 5
    assert await _python(sandbox, "print(1)") == "1\n"


async def test_too_much_memory_is_a_result(sandbox: Sandbox) -> None:
    limits = Limits(wall_s=20.0, memory_mb=100)
    result = await sandbox.run(Command(code="x = bytearray(300 << 20)\nprint('got it')"), limits=limits)
    assert not result.ok and "MemoryError" in result.stderr and not result.oom
    code = (
        "import os, time\nfor _ in range(4):\n    if not os.fork():\n        x = bytearray(b'x' * (60 << 20))\n        "
    )
    result = await sandbox.run(
        Command(code=code + "time.sleep(5)\n        os._exit(0)\nfor _ in range(4):\n    os.wait()"), limits=limits
    )
    assert result.oom


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


async def test_output_beyond_the_limit_is_dropped_and_said_so(sandbox: Sandbox) -> None:
    limits = Limits(wall_s=20.0, output_bytes=1000)
    result = await sandbox.run(
        Command(code="print('x' * 999)\nimport sys\nprint('y' * 2000, file=sys.stderr)"), limits=limits
    )
    assert result.stdout == "x" * 999 + "\n" and not result.stdout_truncated
    assert result.stderr == "y" * 1000 and result.stderr_truncated


async def test_network_is_off_also_where_the_backend_has_it() -> None:
    backend = NamespaceBackend(NamespaceConfig(network=True))
    await backend.start()
    sandbox = await backend.create()
    try:
        names = "import os\nprint([l.split(':')[0].strip() for l in open('/proc/net/dev').readlines()[2:]])"
        assert await _python(sandbox, names) == await _python(sandbox, names, fresh=True) == "['lo']\n"
        session = await sandbox.open_session("python", limits=LIMITS)
        assert (await session.run(names, wall_s=10.0)).stdout == "['lo']\n"
        await session.close()
        ours = [line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]]
        assert await _python(sandbox, names, Limits(wall_s=20.0, network=True)) == f"{ours}\n"
    finally:
        await sandbox.close()
        await backend.close()


async def test_sessions_keep_state_and_show_values(sandbox: Sandbox) -> None:
    python = await sandbox.open_session("python", limits=LIMITS)
    shell = await sandbox.open_session("bash", limits=LIMITS)
    assert (await python.run("x = 20", wall_s=10.0)).stdout == ""
    assert (await python.run("x + 1", wall_s=10.0)).stdout == "21\n"
    error = await python.run("1 / 0", wall_s=10.0)
    assert error.exit_code == 1 and "ZeroDivisionError" in error.stderr
    assert (await shell.run("cd /tmp; y=7; false", wall_s=10.0)).exit_code == 1
    assert (await shell.run('echo "$PWD $y"', wall_s=10.0)).stdout == "/tmp 7\n"
    await python.close()
    assert (await shell.run("echo still here", wall_s=10.0)).stdout == "still here\n"


async def test_a_session_past_its_deadline_is_killed_and_says_so_afterwards(sandbox: Sandbox) -> None:
    session = await sandbox.open_session("python", limits=LIMITS)
    assert (await session.run("while True: pass", wall_s=0.5)).timed_out
    late = await session.run("1", wall_s=1.0)
    assert late.exit_code == -9 and "ended" in late.stderr
    assert await _python(sandbox, "print(1)") == "1\n"


async def test_a_forged_status_does_not_pass_for_the_next_answer(sandbox: Sandbox) -> None:
    session = await sandbox.open_session("python", limits=LIMITS)
    forge = """
import os, threading
def forge():
    os.write(4, b'0\\n')
    open('forged', 'w').close()
threading.Timer(0.2, forge).start()
"""
    await session.run(forge, wall_s=10.0)
    look = "import os, time\nwhile not os.path.exists('forged'): time.sleep(0.02)"
    assert (await sandbox.run(Command(code=look), limits=LIMITS)).ok
    result = await session.run("print('real')", wall_s=10.0)
    assert not result.ok and result.stdout == ""
    assert (await session.run("1", wall_s=1.0)).exit_code == -9


async def test_a_session_cannot_reach_into_a_fresh_run(sandbox: Sandbox) -> None:
    session = await sandbox.open_session("python", limits=LIMITS)
    spy = """
import glob, os, threading
seen = []
def spy():
    while True:
        for path in glob.glob("/proc/[0-9]*/root/work/answer"):
            try:
                seen.append(open(path).read())
            except OSError:
                pass
threading.Thread(target=spy, daemon=True).start()
"""
    assert (await session.run(spy, wall_s=10.0)).ok
    command = Command(code="import time\ntime.sleep(0.5)", files={"answer": b"42"})
    assert (await sandbox.run(command, limits=LIMITS, fresh=True)).ok
    assert (await session.run("seen", wall_s=10.0)).stdout == "[]\n"
    await sandbox.run(Command(code="import time\ntime.sleep(0.5)", files={"answer": b"42"}), limits=LIMITS)
    assert "42" in (await session.run("open('answer').read()", wall_s=10.0)).stdout


async def test_reset_brings_back_a_snapshot_to_the_bit_a_hundred_times(sandbox: Sandbox) -> None:
    setup = (
        "import os\nos.makedirs('a/b')\nopen('a/b/c', 'wb').write(os.urandom(100_000))\nos.symlink('a/b/c', 'link')\n"
        "open('run.sh', 'w').write('x')\nos.chmod('run.sh', 0o755)\nos.truncate('a/b/c', 10_000_000)\nos.mkdir('empty')"
    )
    await _python(sandbox, setup)
    before = await _python(sandbox, HASH)
    number = await sandbox.snapshot()
    hashes = set()
    for turn in range(100):
        wreck = "import os, shutil\nshutil.rmtree('a')\nos.remove('link')\nopen('new', 'w').write('x')"
        await _python(sandbox, wreck if turn % 2 else "open('a/b/c', 'r+b').write(b'other')")
        await sandbox.reset(number)
        hashes.add(await _python(sandbox, HASH))
    assert hashes == {before}
    await sandbox.reset()
    assert await _python(sandbox, "import os\nprint(os.listdir('.'))") == "[]\n"
    with pytest.raises(ConfigError, match="snapshots 1 to 1"):
        await sandbox.reset(2)


async def test_a_snapshot_of_holes_and_of_too_much_is_bounded(backend: NamespaceBackend) -> None:
    sandbox = await backend.create()
    await _python(
        sandbox, "import os\nfor i in range(50):\n    open(f'{i}', 'w').close()\n    os.truncate(f'{i}', 60 << 20)"
    )
    number = await sandbox.snapshot()
    await sandbox.reset(number)
    assert await _python(sandbox, "import os\nprint(os.path.getsize('7') >> 20)") == "60\n"
    deep = "import os\nfor _ in range(900):\n    os.mkdir('deep-folder')\n    os.chdir('deep-folder')"
    await _python(sandbox, deep)
    with pytest.raises(SandboxError, match="could not be kept"):
        await sandbox.snapshot()
    assert await _python(sandbox, "print(1)") == "1\n"
    await sandbox.close()


async def test_what_code_puts_in_the_way_of_files_is_a_result(sandbox: Sandbox) -> None:
    await _python(sandbox, "import os\nos.symlink('/tmp', 'folder')")
    result = await sandbox.run(Command(code="print(1)", files={"folder/x": b"1"}), limits=LIMITS)
    assert result.exit_code == 1 and "could not be written" in result.stderr
    await sandbox.run(Command(argv=["sh", "-c", "head -c 100M /dev/zero > full"]), limits=Limits(file_mb=200))
    result = await sandbox.run(Command(code="print(1)", files={"x": bytes(1 << 20)}), limits=LIMITS)
    assert result.exit_code == 1 and "No space left" in result.stderr


async def test_names_that_no_file_can_have_are_results(sandbox: Sandbox) -> None:
    for name in ("a\0b", "\ud800", "x" * 300):
        result = await sandbox.run(Command(code="", files={name: b"1"}, outputs=[name]), limits=LIMITS)
        assert result.exit_code == 1 and "could not be written" in result.stderr
        assert (await sandbox.run(Command(code="print(1)", outputs=[name]), limits=LIMITS)).files == {}


async def test_a_session_that_takes_all_processes_or_memory_makes_later_runs_fail_as_results(sandbox: Sandbox) -> None:
    limits = Limits(wall_s=20.0, processes=8)
    session = await sandbox.open_session("python", limits=limits)
    forks = "import os, time\nfor _ in range(20):\n    if not os.fork():\n        time.sleep(600)"
    assert "BlockingIOError" in (await session.run(forks, wall_s=10.0)).stderr
    result = await sandbox.run(Command(argv=["true"]), limits=limits)
    assert not result.ok and result.stderr
    other = await sandbox.open_session("python", limits=limits)
    await other.run("1", wall_s=10.0)
    await session.close()
    assert await _python(sandbox, "print(1)") == "1\n"
    hoarder = await sandbox.open_session("python", limits=Limits(memory_mb=600))
    assert (await hoarder.run("x = b'x' * (300 << 20)", wall_s=10.0)).ok
    small = Limits(wall_s=20.0, memory_mb=100)
    result = await sandbox.run(Command(code="print(1)"), limits=small)
    assert result.ok or result.oom
    await hoarder.close()
    assert await _python(sandbox, "print(1)", small) == "1\n"


async def test_cancelling_kills_and_nothing_is_left(backend: NamespaceBackend) -> None:
    await (await backend.create()).close()  # its control group stays, for the next one
    before = Standing.now("cancelled")
    sandbox = await backend.create()
    task = asyncio.create_task(sandbox.run(Command(argv=["sleep", "600"]), limits=Limits(wall_s=600.0)))
    while not any("sleep" in _command_line(pid) for pid in descendants(os.getpid())):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(SandboxError, match="has ended"):
        await sandbox.run(Command(code=""), limits=LIMITS)
    await sandbox.close()
    assert wait_for_nothing_left(before, "cancelled", is_expected=lambda _: False, within_s=5.0) == {}


async def test_sandboxes_run_side_by_side_and_see_nothing_of_each_other(backend: NamespaceBackend) -> None:
    sandboxes = await asyncio.gather(*(backend.create() for _ in range(8)))
    code = "import os, time\nopen('mine', 'w').write('{}')\ntime.sleep(0.3)\n"
    code += "print(open('mine').read(), os.listdir('/tmp'))"
    outputs = await asyncio.gather(*(_python(s, code.format(i)) for i, s in enumerate(sandboxes)))
    assert outputs == [f"{i} []\n" for i in range(8)]
    await asyncio.gather(*(sandbox.close() for sandbox in sandboxes))


async def test_closing_leaves_nothing() -> None:
    before = Standing.now("closed")
    backend = NamespaceBackend()
    await backend.start()
    sandboxes = [await backend.create() for _ in range(3)]
    await sandboxes[0].run(Command(code="print(1)"), limits=LIMITS)
    await sandboxes[0].close()
    await backend.close()  # with two of them open
    assert wait_for_nothing_left(before, "closed", is_expected=lambda _: False, within_s=5.0) == {}


async def test_a_trainer_that_is_killed_takes_everything_with_it_and_the_next_run_sweeps_up(tmp_path: Path) -> None:
    code = """
import asyncio, os
from verl_agentic.sandbox import reaper
from verl_agentic.sandbox.base import Command, Limits
from verl_agentic.sandbox.namespaces import NamespaceBackend
async def main():
    backend = NamespaceBackend()
    await backend.start()
    idle, busy = await backend.create(), await backend.create()
    task = asyncio.create_task(busy.run(Command(argv=["sleep", "600"]), limits=Limits(wall_s=600.0)))
    await idle.run(Command(code="1"), limits=Limits())
    await asyncio.sleep(0.5)
    if os.fork() == 0:
        import time
        time.sleep(8)  # holds the sockets open
        os._exit(0)
    print(reaper.owner(), flush=True)
    await task
asyncio.run(main())
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    assert process.stdout
    owner = process.stdout.readline().strip()
    running = descendants(process.pid)
    boxes = {pid for pid in running if "holds the sockets" not in _command_line(pid)}
    assert len(boxes) >= 4 and any("sleep" in _command_line(pid) for pid in boxes)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    deadline = time.monotonic() + 6
    while any("zygote" in _command_line(pid) or "sleep" in _command_line(pid) for pid in boxes):
        assert time.monotonic() < deadline, "boxes live on"
        await asyncio.sleep(0.02)
    assert reaper.is_dead(owner)
    reaper.reap()
    assert not [name for name in os.listdir("/tmp") if owner in name]
    assert not [folder for folder in cgroups.all_folders() if folder.name.startswith(owner)]


async def test_a_sandbox_whose_process_dies_is_an_error_of_the_sandbox(backend: NamespaceBackend) -> None:
    before = descendants(os.getpid())
    sandbox = await backend.create()
    (box,) = descendants(os.getpid()) - before
    task = asyncio.create_task(sandbox.run(Command(argv=["sleep", "60"]), limits=Limits(wall_s=60.0)))
    await asyncio.sleep(0.3)
    os.kill(box, signal.SIGKILL)
    with pytest.raises(SandboxError, match="died"):
        await task
    await sandbox.close()


async def test_a_creation_that_is_cancelled_does_not_spoil_the_next_one(backend: NamespaceBackend) -> None:
    before = descendants(os.getpid())
    for _ in range(5):
        task = asyncio.create_task(backend.create())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    sandbox = await backend.create()
    assert await _python(sandbox, "print(1)") == "1\n"
    await sandbox.close()
    deadline = time.monotonic() + 5
    while descendants(os.getpid()) - before:
        assert time.monotonic() < deadline, "boxes that nobody has"
        await asyncio.sleep(0.02)


async def test_a_zygote_that_dies_is_replaced(backend: NamespaceBackend) -> None:
    assert backend._zygote is not None
    sandbox = await backend.create()
    os.kill(backend._zygote._process.pid, signal.SIGKILL)
    with pytest.raises(SandboxError, match="died"):
        await sandbox.run(Command(argv=["sleep", "60"]), limits=Limits(wall_s=60.0))
    await sandbox.close()
    other = await backend.create()
    assert await _python(other, "print(1)") == "1\n"
    await other.close()


async def test_a_backend_that_is_not_started_says_so() -> None:
    with pytest.raises(SandboxError, match="not started"):
        await NamespaceBackend().create()


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


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
