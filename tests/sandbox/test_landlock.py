"""What the backend `landlock` keeps of the contract in `sandbox.base`; what it stops is tested with the escapes."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from escape_leaks import Standing, descendants, wait_for_nothing_left

from verl_agentic.errors import ConfigError, SandboxError, SandboxUnavailableError
from verl_agentic.sandbox import reaper
from verl_agentic.sandbox.base import Command, CommandResult, Limits, Sandbox
from verl_agentic.sandbox.inside import landlock, landlock_box
from verl_agentic.sandbox.landlock import LandlockBackend, LandlockConfig

LIMITS = Limits(wall_s=20.0)


async def _started(config: LandlockConfig) -> LandlockBackend:
    backend = LandlockBackend(config)
    try:
        await backend.start()
    except SandboxUnavailableError as reason:
        pytest.skip(str(reason))
    return backend


@pytest.fixture
async def backend() -> AsyncIterator[LandlockBackend]:
    backend = await _started(LandlockConfig())
    yield backend
    await backend.close()


@pytest.fixture(params=[None, False], ids=["as_it_is_here", "without_control_groups"])
async def limited(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    backend = await _started(LandlockConfig(control_groups=request.param))
    sandbox = await backend.create()
    yield sandbox
    await sandbox.close()
    await backend.close()


@pytest.fixture
async def sandbox(backend: LandlockBackend) -> AsyncIterator[Sandbox]:
    sandbox = await backend.create()
    yield sandbox
    await sandbox.close()


async def _run(sandbox: Sandbox, code: str, limits: Limits = LIMITS, *, fresh: bool = False) -> CommandResult:
    return await sandbox.run(Command(code=code), limits=limits, fresh=fresh)


async def _python(sandbox: Sandbox, code: str, *, fresh: bool = False) -> str:
    result = await _run(sandbox, code, fresh=fresh)
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
    for fresh in (False, True, True):
        result = await sandbox.run(command, limits=LIMITS, fresh=fresh)
        assert (result.stdout, result.stderr, result.exit_code) == ("1\n2\nhi\n", "oops\n", 3)
        assert result.files == {"out": b"x"} and not result.ok and not result.timed_out


async def test_the_environment_holds_nothing_of_the_host(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "secret")
    code = "import os\nprint(sorted(os.environ), os.environ['HOME'] == os.getcwd())"
    for fresh in (False, True):
        assert await _python(sandbox, code, fresh=fresh) == "['HOME', 'LANG', 'PATH', 'TMPDIR'] True\n"


async def test_python_starts_python_and_temporary_files_can_be_made(sandbox: Sandbox) -> None:
    code = """
import hashlib, os, subprocess, tempfile
with tempfile.TemporaryDirectory() as folder:
    open(os.path.join(folder, "x"), "w").close()
    os.rename(os.path.join(folder, "x"), "moved")
print(subprocess.run(["python3", "-c", "import json; print(json.dumps([1]))"], capture_output=True, text=True))
print(os.listdir("."), hashlib.sha256(b"").hexdigest()[:4])
"""
    for fresh in (False, True):
        out = await _python(sandbox, code, fresh=fresh)
        assert "returncode=0, stdout='[1]\\n', stderr=''" in out and out.endswith("['moved'] e3b0\n")


async def test_files_stay_between_runs_and_fresh_runs_share_none(sandbox: Sandbox) -> None:
    await _python(sandbox, "open('kept', 'w').write('1')")
    for leave in ("open('own', 'w').write('2')", "pass", "import os\nos.mkdir(os.environ['TMPDIR'] + '/x')", "pass"):
        look = "import os\nassert not os.listdir('.') + os.listdir(os.environ['TMPDIR'])\n"
        await _python(sandbox, look + leave, fresh=True)
    assert await _python(sandbox, "import os\nprint(os.listdir('.'))") == "['kept']\n"


@pytest.mark.parametrize(
    "change",
    [
        "os.chmod(folder, 0)",
        "os.chmod(folder + '/..', 0)",
        "os.utime(folder, (1, 1))",
        "os.utime(folder + '/../tmp', (1, 1))",
        "os.rename(folder, folder + '2')",
        "os.symlink('/', folder + '/../link')",
        "os.rmdir(folder + '/../tmp')",
        "os.makedirs('a' + '/b' * 400)",
        "os.mkdir('closed', 0)",
    ],
)
async def test_what_code_does_to_its_folders_ends_with_it(sandbox: Sandbox, change: str) -> None:
    look = (
        "import os\nplaces = ['.', '..', '../tmp']\n"
        "print([(sorted(os.listdir(p)), os.stat(p).st_mode, os.stat(p).st_mtime > 1e9) for p in places])"
    )
    code = f"import os\nfolder = os.getcwd()\ntry:\n    {change}\nexcept PermissionError:\n    print('refused')"
    untouched = await _python(sandbox, look, fresh=True)
    for fresh in (True, False):
        await _python(sandbox, code, fresh=fresh)
        assert await _python(sandbox, look, fresh=True) == untouched
    await sandbox.reset()
    assert await _python(sandbox, look) == untouched


async def test_what_code_does_to_its_streams_ends_with_it(sandbox: Sandbox) -> None:
    spoil = "import os, sys\nfor n in range(3):\n    os.set_blocking(n, False)\nos.environ['LEFT'] = 'x'"
    look = "import os\nprint([os.get_blocking(n) for n in range(3)], 'LEFT' in os.environ)"
    for fresh in (False, True):
        await _python(sandbox, spoil, fresh=fresh)
        assert await _python(sandbox, look, fresh=fresh) == "[True, True, True] False\n"


async def test_deadline_kills_all_and_the_sandbox_goes_on(backend: LandlockBackend, sandbox: Sandbox) -> None:
    before = descendants(os.getpid())
    fork = "import os, time\nfor _ in range(4):\n    if os.fork() == 0:\n        os.setsid()\ntime.sleep(60)"
    started = time.monotonic()
    result = await _run(sandbox, fork, Limits(wall_s=0.5))
    assert result.timed_out and result.signal_name == "SIGKILL" and time.monotonic() - started < 5
    assert descendants(os.getpid()) <= before
    assert await _python(sandbox, "print(1)") == "1\n"


async def test_code_cannot_reach_the_box_that_is_the_same_user(backend: LandlockBackend) -> None:
    before = descendants(os.getpid())
    sandbox = await backend.create()
    (box,) = descendants(os.getpid()) - before
    attempts = [
        "os.kill(box, signal.SIGTERM)",
        "os.kill(box, signal.SIGCONT)",
        "signal.pidfd_send_signal(os.pidfd_open(box), signal.SIGKILL)",
        "resource.prlimit(box, resource.RLIMIT_CPU, (0, 0))",
        "os.sched_setaffinity(box, {0})",
        "os.setpriority(os.PRIO_PROCESS, box, 19)",
        "os.setpriority(os.PRIO_USER, 0, 19)",
        "open(f'/proc/{box}/status')",
    ]
    code = "import os, resource, signal\nbox = os.getppid()\nprint(box)\n"
    for attempt in attempts:
        code += f"try:\n    {attempt}\nexcept PermissionError:\n    print('refused')\n"
    for fresh in (False, True):
        assert await _python(sandbox, code, fresh=fresh) == f"{box}\n" + "refused\n" * len(attempts)
    await sandbox.close()


async def test_too_much_memory_is_a_result(limited: Sandbox) -> None:
    limits = Limits(wall_s=20.0, memory_mb=100)
    result = await _run(limited, "x = bytearray(300 << 20)\nprint('got it')", limits)
    assert not result.ok and "MemoryError" in result.stderr and not result.oom
    code = (
        "import os, time\nfor _ in range(4):\n    if not os.fork():\n        x = bytearray(b'x') * (60 << 20)\n"
        "        time.sleep(5)\n        os._exit(0)\nfor _ in range(4):\n    os.wait()"
    )
    assert (await _run(limited, code, limits)).oom
    assert await _python(limited, "print(1)") == "1\n"


async def test_too_many_files_are_a_result_that_says_so(sandbox: Sandbox) -> None:
    fill = "import time\nfor i in range(20):\n    open(f'{i}', 'wb').write(bytes(5 << 20))\ntime.sleep(30)"
    many = "import time\nfor i in range(20_000):\n    open(f'{i}', 'wb').close()\ntime.sleep(30)"
    for code in (fill, many):
        result = await _run(sandbox, code, fresh=True)
        assert result.exit_code == -9 and not result.timed_out and not result.oom
        assert "more than the disk space" in result.stderr
    session = await sandbox.open_session("python", limits=LIMITS)
    result = await session.run(fill, wall_s=20.0)
    assert not result.timed_out and "more than the disk space" in result.stderr
    await sandbox.reset()
    assert await _python(sandbox, "import os\nprint(os.listdir('.'))") == "[]\n"


async def test_processes_are_limited_and_those_of_others_do_not_count(limited: Sandbox) -> None:
    fork = "import os, time\nfor i in range(60):\n    try:\n        if os.fork() == 0:\n            time.sleep(20)\n"
    fork += "            os._exit(0)\n    except BlockingIOError:\n        break\nprint(i)"
    results = [int((await _run(limited, fork, Limits(processes=20), fresh=True)).stdout) for _ in range(3)]
    assert all(15 <= count <= 20 for count in results), results


async def test_sessions_keep_state_and_end_at_their_deadline(sandbox: Sandbox) -> None:
    python = await sandbox.open_session("python", limits=LIMITS)
    shell = await sandbox.open_session("bash", limits=LIMITS)
    assert (await python.run("x = 20", wall_s=10.0)).stdout == ""
    assert (await python.run("x + 1", wall_s=10.0)).stdout == "21\n"
    assert (await shell.run('cd "$TMPDIR"; y=7; false', wall_s=10.0)).exit_code == 1
    assert (await shell.run('[ "$PWD" = "$TMPDIR" ]; echo $? $y', wall_s=10.0)).stdout == "0 7\n"
    daemon = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(60)\n"
    assert (await _run(sandbox, daemon)).ok  # a stray beside sessions
    assert await _python(sandbox, "print(1)", fresh=True) == "1\n"
    assert (await python.run("while True: pass", wall_s=0.5)).timed_out
    late = await python.run("1", wall_s=1.0)
    assert late.exit_code == -9 and "ended" in late.stderr
    assert (await shell.run("echo still here", wall_s=10.0)).stdout == "still here\n"


async def test_strays_end_and_sessions_stay(sandbox: Sandbox) -> None:
    before = descendants(os.getpid())
    session = await sandbox.open_session("bash", limits=LIMITS)
    assert (await session.run("sleep 60 & echo $!", wall_s=10.0)).ok
    mine = descendants(os.getpid()) - before
    daemon = "import os, time\nfor _ in range(3):\n    if os.fork() == 0:\n        os.setsid()\n        time.sleep(60)"
    assert (await _run(sandbox, daemon)).ok
    assert descendants(os.getpid()) - before == mine and len(mine) == 2
    await session.close()
    assert not descendants(os.getpid()) - before


async def test_a_session_cannot_reach_a_fresh_run(sandbox: Sandbox) -> None:
    session = await sandbox.open_session("python", limits=LIMITS)
    spy = """
import os, threading
seen = []
def spy():
    while True:
        for path in ("../../fresh/work/answer", "../../fresh", "../.."):
            try:
                seen.append(os.listdir(path) if path.endswith(("..", "fresh")) else open(path).read())
            except OSError:
                pass
threading.Thread(target=spy, daemon=True).start()
"""
    assert (await session.run(spy, wall_s=10.0)).ok
    command = Command(code="import time\ntime.sleep(0.3)", files={"answer": b"42"})
    assert (await sandbox.run(command, limits=LIMITS, fresh=True)).ok
    assert (await session.run("seen", wall_s=10.0)).stdout == "[]\n"


async def test_reset_brings_back_a_snapshot(sandbox: Sandbox) -> None:
    setup = (
        "import os\nos.makedirs('a/b')\nopen('a/b/c', 'wb').write(os.urandom(100_000))\nos.symlink('a/b/c', 'link')\n"
        "open('run', 'w').write('x')\nos.mkdir('closed', 0)\n"
        "for path in ('a/b/c', 'a/b', 'a', 'run', 'closed'):\n    os.utime(path, (7, 7))"
    )
    look = """
import hashlib, os
found = []
for folder, names, files in os.walk("."):
    for name in sorted(names + files):
        path = os.path.join(folder, name)
        status = os.lstat(path)
        content = hashlib.sha256(open(path, "rb").read()).hexdigest() if os.path.isfile(path) else ""
        found.append((path, status.st_mode, os.path.islink(path) or status.st_mtime_ns, content))
print(sorted(found))
"""
    await _python(sandbox, setup)
    before = await _python(sandbox, look)
    number = await sandbox.snapshot()
    for turn in range(20):
        wreck = "import os, shutil\nshutil.rmtree('a')\nos.remove('link')\nopen('new', 'w').write('x')"
        await _python(sandbox, wreck if turn % 2 else "open('a/b/c', 'r+b').write(b'other')")
        await sandbox.reset(number)
        assert await _python(sandbox, look) == before
    await sandbox.reset()
    assert await _python(sandbox, "import os\nprint(os.listdir('.'))") == "[]\n"
    with pytest.raises(ConfigError, match="snapshots 1 to 1"):
        await sandbox.reset(2)
    await _python(
        sandbox, "import os\nfor i in range(50):\n    open(f'{i}', 'w').close()\n    os.truncate(f'{i}', 60 << 20)"
    )
    with pytest.raises(SandboxError, match="could not be kept"):
        await sandbox.snapshot()
    assert await _python(sandbox, "print(1)") == "1\n"


async def test_what_code_puts_in_the_way_of_files_is_a_result(sandbox: Sandbox) -> None:
    await _python(sandbox, "import os\nos.symlink('/usr', 'folder')")
    result = await sandbox.run(Command(code="print(1)", files={"folder/x": b"1"}), limits=LIMITS)
    assert result.exit_code == 1 and "could not be written" in result.stderr


async def test_sandboxes_run_side_by_side_and_see_nothing_of_each_other(backend: LandlockBackend) -> None:
    sandboxes = await asyncio.gather(*(backend.create() for _ in range(6)))
    code = "import os, time\nopen('mine', 'w').write('{}')\ntime.sleep(0.3)\nprint(open('mine').read())\n"
    code += "for other in range(10):\n    try:\n        print(os.listdir(f'../../../{{other}}'))\n"
    code += "    except OSError:\n        pass"
    outputs = await asyncio.gather(*(_python(s, code.format(i)) for i, s in enumerate(sandboxes)))
    assert outputs == [f"{i}\n" for i in range(6)]
    users = await asyncio.gather(
        *(_python(s, "import os\nprint(os.getuid(), os.getgid(), os.getgroups())") for s in sandboxes)
    )
    if os.geteuid() == 0:
        assert len(set(users)) == 6 and not any(user.startswith("0 ") or " 0 " in user for user in users)
    await asyncio.gather(*(sandbox.close() for sandbox in sandboxes))


async def test_packages_that_are_given_can_be_imported_and_only_read(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            os.chmod(folder, folder.stat().st_mode | 0o055)
    (tmp_path / "gift.py").write_text("value = 7")
    backend = await _started(LandlockConfig(read_only=[str(tmp_path)], python_path=[str(tmp_path)]))
    sandbox = await backend.create()
    assert await _python(sandbox, "import gift\nprint(gift.value)", fresh=True) == "7\n"
    result = await _run(sandbox, f"open({str(tmp_path / 'gift.py')!r}, 'a')", fresh=True)
    assert "PermissionError" in result.stderr
    await sandbox.close()
    await backend.close()


async def test_cancelling_kills_and_nothing_is_left(backend: LandlockBackend) -> None:
    await (await backend.create()).close()  # its control group stays, for the next one
    before = Standing.now("cancelled")
    sandbox = await backend.create()
    fork = "import os, time\nif os.fork() == 0:\n    os.setsid()\ntime.sleep(600)"
    task = asyncio.create_task(sandbox.run(Command(code=fork), limits=Limits(wall_s=600.0)))
    await asyncio.sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await sandbox.close()
    assert wait_for_nothing_left(before, "cancelled", is_expected=lambda _: False, within_s=5.0) == {}
    assert not os.listdir(f"{backend._zygote._base}/boxes")  # type: ignore[union-attr]


@pytest.mark.parametrize("is_trainer", [True, False], ids=["trainer", "zygote"])
async def test_who_is_killed_takes_everything_along(tmp_path: Path, is_trainer: bool) -> None:
    code = """
import asyncio, sys
from verl_agentic.sandbox import reaper
from verl_agentic.sandbox.base import Command, Limits
from verl_agentic.sandbox.landlock import LandlockBackend
async def main():
    backend = LandlockBackend()
    await backend.start()
    idle, busy = await backend.create(), await backend.create()
    fork = "import os, time\\nfor _ in range(3):\\n    if os.fork() == 0:\\n        os.setsid()\\ntime.sleep(600)"
    task = asyncio.create_task(busy.run(Command(code=fork), limits=Limits(wall_s=600.0)))
    await idle.run(Command(code="1"), limits=Limits())
    await asyncio.sleep(0.5)
    print(backend._zygote._process.pid, reaper.owner(), flush=True)
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(600)
try:
    asyncio.run(main())
except Exception as error:
    print("no", error, flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    assert process.stdout
    zygote, owner = process.stdout.readline().split(" ", 1)
    if zygote == "no":
        process.wait()
        pytest.skip(owner)
    running = descendants(process.pid)
    assert len(running) >= 3 + 8  # the zygote, two boxes, and eight of the program
    os.kill(process.pid if is_trainer else int(zygote), signal.SIGKILL)
    deadline = time.monotonic() + 10
    while (left := {pid for pid in running if _lives(pid)}) and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait()
    process.stdout.close()
    assert not left
    reaper.reap()
    assert not [name for name in os.listdir("/tmp") if owner.strip() in name]


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSYS, "use Linux 6.12 or newer, and an engine whose seccomp profile"),
        (errno.EOPNOTSUPP, "add landlock to the kernel's parameter lsm="),
        (errno.EPERM, "--security-opt seccomp=FILE"),
    ],
)
async def test_without_landlock_the_error_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, number: int, advice: str
) -> None:
    def abi() -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(landlock, "abi", abi)
    with pytest.raises(SandboxUnavailableError, match="Landlock cannot be used here, got ") as caught:
        await LandlockBackend().start()
    assert advice in str(caught.value)


@pytest.mark.parametrize("version", range(1, landlock.MIN_ABI))
async def test_a_landlock_that_lets_signals_out_is_refused(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: version)
    with pytest.raises(SandboxUnavailableError, match=f"got version {version}; use Linux 6.12 or newer"):
        await LandlockBackend().start()


@pytest.mark.parametrize("mapped", ["0 0 4294967295", "0 165536 65536", "0 1000 1\n1 100000 65536"])
def test_users_of_boxes_exist_and_are_nobody_else(mapped: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "uid_map"
    table.write_text(mapped)
    monkeypatch.setattr(landlock_box, "_UID_MAP", str(table))
    spans = [tuple(map(int, line.split())) for line in mapped.splitlines()]
    users = [landlock_box._user(number) for number in range(0, 10**7, 997)]
    assert all(any(first <= user < first + count for first, _, count in spans) for user in users)
    assert min(users) > 30_000 and max(users) < 2**31  # no user of a distribution, nor a negative number
