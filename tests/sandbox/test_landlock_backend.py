"""Behaviour of the backend `landlock` that `namespaces` does not share; `test_boxes.py` tests what both do."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from boxes import LIMITS, python, started
from escape_leaks import descendants

from verl_agentic.base.errors import ConfigError, DataError, SandboxUnavailableError
from verl_agentic.sandbox.boxes.landlock_backend import LandlockBackend, LandlockConfig
from verl_agentic.sandbox.inside import landlock, landlock_box
from verl_agentic.sandbox.interface import Command, Limits, Sandbox


@pytest.fixture
async def backend() -> AsyncIterator[LandlockBackend]:
    backend = await started(LandlockBackend())
    yield backend
    await backend.close()


@pytest.mark.slow
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
        out = await python(sandbox, code, fresh=fresh)
        assert "returncode=0, stdout='[1]\\n', stderr=''" in out and out.endswith("['moved'] e3b0\n")


@pytest.mark.sample(1)
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
    untouched = await python(sandbox, look, fresh=True)
    for fresh in (True, False):
        result = await sandbox.run(Command(code=code), limits=LIMITS, fresh=fresh)
        # Files are counted from time to time, and folders that are too deep to be counted end the code.
        assert result.exit_code == 0 or "more than the disk space" in result.stderr
        assert await python(sandbox, look, fresh=True) == untouched
    await sandbox.reset()
    assert await python(sandbox, look) == untouched


@pytest.mark.slow
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
        assert await python(sandbox, code, fresh=fresh) == f"{box}\n" + "refused\n" * len(attempts)
    await sandbox.close()


@pytest.mark.slow
async def test_too_many_files_are_a_result_that_says_so(sandbox: Sandbox) -> None:
    fill = "import time\nfor i in range(20):\n    open(f'{i}', 'wb').write(bytes(5 << 20))\ntime.sleep(30)"
    many = "import time\nfor i in range(20_000):\n    open(f'{i}', 'wb').close()\ntime.sleep(30)"
    for code in (fill, many):
        result = await sandbox.run(Command(code=code), limits=LIMITS, fresh=True)
        assert result.exit_code == -9 and not result.timed_out and not result.oom
        assert "more than the disk space" in result.stderr
    session = await sandbox.open_session("python", limits=LIMITS)
    result = await session.run(fill, wall_s=20.0)
    assert not result.timed_out and "more than the disk space" in result.stderr
    await sandbox.reset()
    assert await python(sandbox, "import os\nprint(os.listdir('.'))") == "[]\n"


_FILL = """
import ctypes, os, threading, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
block = bytes(1 << 20)
def opened(name):
    return os.open(name, os.O_RDWR | os.O_CREAT)
def put(file):
    for _ in range(20):
        os.write(file, block)
def put_all_deleted():
    for _ in range(20):
        put(opened("x"))
        os.unlink("x")
{how}
time.sleep(30)
"""
_HIDING = {
    "deleted": "put_all_deleted()",
    "never named": "for _ in range(20):\n    put(os.open('.', os.O_RDWR | os.O_TMPFILE))",
    "mapped": """
for _ in range(20):
    file = opened("x")
    put(file)
    libc.mmap(None, 4096, 1, 1, file, 0)
    os.close(file)
    os.unlink("x")
""",
    "descriptors of one thread": """
def work():
    libc.close_range(900, 901, 2)  # from now on it has its own
    put_all_deleted()
    time.sleep(30)
threading.Thread(target=work, daemon=True).start()
""",
    "not readable": "if os.fork() == 0:\n    libc.prctl(4, 0)\n    put_all_deleted()",
    "closed folder": "os.mkdir('d', 0o300)\nfor i in range(20):\n    put(opened(f'd/{i}'))",
    "beyond the end": """
for i in range(20):
    file = opened(f"{i}")
    libc.fallocate(file, 1, ctypes.c_long(0), ctypes.c_long(20 << 20))
    put(file)
""",
    "hard links": "os.mkdir('d', 0o300)\nos.close(opened('x'))\nfor i in range(30_000):\n    os.link('x', f'd/{i}')",
    "deep": """
for _ in range(300):
    os.mkdir("d" * 50)
    os.chdir("d" * 50)
for i in range(20):
    put(opened(f"{i}"))
""",
    "temporary folder": "os.chdir(os.environ['TMPDIR'])\nput_all_deleted()",
    "names in a closed folder": "os.mkdir('d', 0o300)\nfor i in range(30_000):\n    os.close(opened(f'd/{i}'))",
    "folders": "for i in range(20_000):\n    os.mkdir(f'{i}')",
}


@pytest.mark.sample(1, slow=4)
@pytest.mark.parametrize("how", _HIDING)
async def test_no_file_is_hidden_from_the_limit(sandbox: Sandbox, how: str) -> None:
    code = _FILL.replace("{how}", _HIDING[how])
    for fresh in (True, False):
        result = await sandbox.run(Command(code=code), limits=Limits(wall_s=60.0, file_mb=1000), fresh=fresh)
        assert not result.timed_out and "more than the disk space" in result.stderr, result
    await sandbox.reset()
    assert await python(sandbox, "import os\nprint(os.listdir('.'))") == "[]\n"


@pytest.mark.slow
async def test_files_of_a_session_are_limited_between_its_calls(backend: LandlockBackend, sandbox: Sandbox) -> None:
    session = await sandbox.open_session("python", limits=LIMITS)
    fill = "import threading, time\ndef fill():\n    with open('x', 'wb') as file:\n        while True:\n"
    fill += (
        "            time.sleep(0.02)\n            file.write(bytes(1 << 20))\n            if file.tell() > 50 << 20:\n"
    )
    fill += "                file = open(str(time.time()), 'wb')\n"
    assert (await session.run(fill + "threading.Thread(target=fill, daemon=True).start()", wall_s=10.0)).ok
    deadline = time.monotonic() + 30
    assert backend._zygote
    while len(descendants(backend._zygote._process.pid)) > 1 and time.monotonic() < deadline:  # more than the box
        await asyncio.sleep(0.1)
    assert len(descendants(backend._zygote._process.pid)) == 1
    assert not (await session.run("print(1)", wall_s=10.0)).ok
    await sandbox.reset()
    assert await python(sandbox, "print(1)") == "1\n"


@pytest.mark.slow
async def test_removing_what_code_has_left_delays_no_answer(sandbox: Sandbox) -> None:
    many = (
        "import os\nos.mkdir('d', 0o300)\nopen('x', 'w').close()\nfor i in range(15_000):\n    os.link('x', f'd/{i}')"
    )
    await python(sandbox, many, fresh=True)
    await sandbox.run(Command(code=many), limits=LIMITS)
    assert await python(sandbox, "import os\nprint(os.listdir('.'))", fresh=True) == "[]\n"
    await sandbox.reset()
    assert await python(sandbox, "import os\nprint(os.listdir('.'))") == "[]\n"


@pytest.mark.slow
async def test_a_tree_that_cannot_be_kept_is_an_error_of_the_data(sandbox: Sandbox) -> None:
    for change in ("deep", "names"):
        code = {
            "deep": "import os\nfor i in range(1500):\n    os.mkdir('d')\n    os.chdir('d')",
            "names": "import os\nos.makedirs('d')\nopen('x', 'w').close()\n"
            "for i in range(70_000):\n    os.link('x', f'd/{i % 7}{i}') if i % 60_000 else os.link('x', f'y{i}')",
        }[change]
        await sandbox.run(Command(code=code), limits=LIMITS)
        with contextlib.suppress(DataError):
            await sandbox.snapshot()
        assert await python(sandbox, "print(1)") == "1\n"
        await sandbox.reset()


@pytest.mark.slow
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
    await python(sandbox, setup)
    before = await python(sandbox, look)
    number = await sandbox.snapshot()
    for turn in range(20):
        wreck = "import os, shutil\nshutil.rmtree('a')\nos.remove('link')\nopen('new', 'w').write('x')"
        await python(sandbox, wreck if turn % 2 else "open('a/b/c', 'r+b').write(b'other')")
        await sandbox.reset(number)
        assert await python(sandbox, look) == before
    await sandbox.reset()
    assert await python(sandbox, "import os\nprint(os.listdir('.'))") == "[]\n"
    with pytest.raises(ConfigError, match="snapshots 1 to 1"):
        await sandbox.reset(2)
    await python(
        sandbox, "import os\nfor i in range(50):\n    open(f'{i}', 'w').close()\n    os.truncate(f'{i}', 60 << 20)"
    )
    with pytest.raises(DataError, match="kept"):
        await sandbox.snapshot()
    assert await python(sandbox, "print(1)") == "1\n"


@pytest.mark.slow
async def test_sandboxes_run_side_by_side_and_see_nothing_of_each_other(backend: LandlockBackend) -> None:
    sandboxes = await asyncio.gather(*(backend.create() for _ in range(6)))
    code = "import os, time\nopen('mine', 'w').write('{}')\ntime.sleep(0.3)\nprint(open('mine').read())\n"
    code += "for other in range(10):\n    try:\n        print(os.listdir(f'../../../{{other}}'))\n"
    code += "    except OSError:\n        pass"
    outputs = await asyncio.gather(*(python(s, code.format(i)) for i, s in enumerate(sandboxes)))
    assert outputs == [f"{i}\n" for i in range(6)]
    users = await asyncio.gather(
        *(python(s, "import os\nprint(os.getuid(), os.getgid(), os.getgroups())") for s in sandboxes)
    )
    if os.geteuid() == 0:
        assert len(set(users)) == 6 and not any(user.startswith("0 ") or " 0 " in user for user in users)
    await asyncio.gather(*(sandbox.close() for sandbox in sandboxes))


@pytest.mark.slow
async def test_packages_that_are_given_can_be_imported_and_only_read(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            os.chmod(folder, folder.stat().st_mode | 0o055)
    (tmp_path / "gift.py").write_text("value = 7")
    backend = await started(LandlockBackend(LandlockConfig(read_only=[str(tmp_path)], python_path=[str(tmp_path)])))
    sandbox = await backend.create()
    assert await python(sandbox, "import gift\nprint(gift.value)", fresh=True) == "7\n"
    write = Command(code=f"open({str(tmp_path / 'gift.py')!r}, 'a')")
    result = await sandbox.run(write, limits=LIMITS, fresh=True)
    assert "PermissionError" in result.stderr
    await sandbox.close()
    await backend.close()


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
    with pytest.raises(SandboxUnavailableError, match="Landlock") as caught:
        await LandlockBackend().start()
    assert advice in str(caught.value)


@pytest.mark.parametrize("version", range(1, landlock.MIN_ABI))
async def test_a_landlock_that_lets_signals_out_is_refused(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: version)
    with pytest.raises(SandboxUnavailableError, match=f"got version {version}; use Linux 6.12 or newer"):
        await LandlockBackend().start()


@pytest.mark.sample(1)
@pytest.mark.parametrize("mapped", ["0 0 4294967295", "0 165536 65536", "0 1000 1\n1 100000 65536"])
def test_users_of_boxes_exist_and_are_nobody_else(mapped: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "uid_map"
    table.write_text(mapped)
    monkeypatch.setattr(landlock_box, "_UID_MAP", str(table))
    spans = [tuple(map(int, line.split())) for line in mapped.splitlines()]
    users = [landlock_box._choose_user(number) for number in range(0, 10**7, 997)]
    assert all(any(first <= user < first + count for first, _, count in spans) for user in users)
    assert min(users) > 30_000 and max(users) < 2**31  # no user of a distribution, nor a negative number
