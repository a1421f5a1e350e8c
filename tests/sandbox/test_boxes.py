"""Contract of `sandbox.interface` in the backends `namespaces` and `landlock`; each test runs with both."""

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
from boxes import LIMITS, command_line, lives, python, started
from escape_leaks import Standing, descendants, wait_for_nothing_left

from verl_agentic.base.errors import SandboxError
from verl_agentic.sandbox.boxes import cgroups, reaper
from verl_agentic.sandbox.boxes.landlock_backend import LandlockBackend
from verl_agentic.sandbox.boxes.namespaces_backend import NamespaceBackend
from verl_agentic.sandbox.inside import memory
from verl_agentic.sandbox.interface import Command, Limits, Sandbox
from verl_agentic.sandbox.pools.backends import make_backend

_NAMES = ["HOME", "LANG", "PATH", "PYTHONDONTWRITEBYTECODE"]
ENVIRONMENT = {"namespaces": _NAMES, "landlock": [*_NAMES, "TMPDIR"]}
FORKS = "import os, time\nfor _ in range(3):\n    if os.fork() == 0:\n        os.setsid()\ntime.sleep(600)"
NUM_FORKED = 8


@pytest.fixture(params=[NamespaceBackend, LandlockBackend], ids=lambda kind: kind.name)
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[NamespaceBackend]:
    backend = await started(request.param())
    yield backend
    await backend.close()


@pytest.fixture(params=[None, False], ids=["as_it_is_here", "without_control_groups"])
def control_groups(request: pytest.FixtureRequest) -> bool | None:
    return request.param


@pytest.fixture(params=["namespaces", "landlock"])
async def limited(request: pytest.FixtureRequest, control_groups: bool | None) -> AsyncIterator[Sandbox]:
    backend = make_backend(request.param, at_least="landlock", control_groups=control_groups)
    assert isinstance(backend, NamespaceBackend)
    await started(backend)
    sandbox = await backend.create()
    yield sandbox
    await sandbox.close()
    await backend.close()


@pytest.mark.sample(1)
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
    assert await python(sandbox, "import sys\nprint(sys.stdin.read() * 2)", stdin=b"ab") == "abab\n"


@pytest.mark.sample(1)
async def test_the_environment_holds_nothing_of_the_host(
    backend: NamespaceBackend, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "secret")
    code = "import os\nprint(sorted(os.environ), os.environ['HOME'] == os.getcwd())"
    for fresh in (False, True):
        assert await python(sandbox, code, fresh=fresh) == f"{ENVIRONMENT[backend.name]} True\n"


@pytest.mark.sample(1)
async def test_large_files_and_outputs_arrive_whole(sandbox: Sandbox) -> None:
    data = os.urandom(5_000_000)
    command = Command(argv=["cp", "a", "b"], files={"a": data}, stdin=data, outputs=["b", "a"])
    for fresh in (False, True):
        result = await sandbox.run(command, limits=LIMITS, fresh=fresh)
        assert result.ok and result.files == {"a": data, "b": data}


@pytest.mark.sample(1)
async def test_random_numbers_differ_from_one_execution_to_the_next(sandbox: Sandbox) -> None:
    code = "import random\nprint(random.random(), random.gauss(0, 1), random.getrandbits(64))"
    seen = [await python(sandbox, code, fresh=fresh) for fresh in (False, True, True)]
    for _ in range(2):
        session = await sandbox.open_session("python", limits=LIMITS)
        seen.append((await session.run(code, wall_s=10.0)).stdout)
        await session.close()
    assert len(set(seen)) == 5


@pytest.mark.sample(1)
async def test_what_code_does_to_its_streams_and_environment_ends_with_it(
    backend: NamespaceBackend, sandbox: Sandbox
) -> None:
    spoil = (
        "import os, sys\nfor n in range(3):\n    os.set_blocking(n, False)\nos.environ['LEFT'] = 'x'\nsys.path[:] = []"
    )
    look = """
import os
def is_open(number):
    try:
        return bool(os.fstat(number))
    except OSError:
        return False
print([os.get_blocking(n) for n in range(3)], sorted(os.environ), [n for n in range(1024) if is_open(n)])
"""
    for fresh in (False, True):
        await python(sandbox, spoil, fresh=fresh)
        expected = f"[True, True, True] {ENVIRONMENT[backend.name]} [0, 1, 2]\n"
        assert await python(sandbox, look, fresh=fresh) == expected
        assert await python(sandbox, look, fresh=fresh, stdin=b"x") == expected


@pytest.mark.sample(1)
async def test_output_beyond_what_pipes_hold_arrives_whole(sandbox: Sandbox) -> None:
    limits = Limits(wall_s=20.0, output_bytes=1 << 20)
    code = "import sys\nprint(len(sys.stdin.read()))\nprint('y' * 300_000, file=sys.stderr)\nprint('x' * 600_000)"
    for size in (0, 10, 300_000):
        result = await sandbox.run(Command(code=code, stdin=b"z" * size), limits=limits, fresh=True)
        assert result.stdout == f"{size}\n" + "x" * 600_000 + "\n" and result.stderr == "y" * 300_000 + "\n"
        assert not result.truncated and not result.timed_out


@pytest.mark.sample(1)
async def test_output_beyond_the_limit_keeps_head_and_tail_and_names_the_rest(sandbox: Sandbox) -> None:
    limits = Limits(wall_s=20.0, output_bytes=1000)
    code = "print('x' * 999)\nimport sys\nprint('y' * 2000, file=sys.stderr)"
    result = await sandbox.run(Command(code=code), limits=limits)
    assert result.stdout == "x" * 999 + "\n" and not result.stdout_truncated
    assert result.stderr == "y" * 500 + "\n... 1001 bytes left out ...\n" + "y" * 499 + "\n"
    assert result.stderr_truncated


@pytest.mark.sample(1)
async def test_texts_of_other_types_are_taken_for_what_they_are(sandbox: Sandbox) -> None:
    class Text(str):
        """As NumPy's, which data sets are full of."""

    command = Command(code=Text("import os\nprint(os.environ['A'], open('f').read())"), env={Text("A"): Text("\u00e4")})
    result = await sandbox.run(replace(command, files={Text("f"): b"1"}, outputs=[Text("f")]), limits=LIMITS)
    assert (result.stdout, result.files) == ("\u00e4 1\n", {"f": b"1"})


@pytest.mark.sample(1)
async def test_files_stay_between_runs_and_fresh_runs_share_none(sandbox: Sandbox) -> None:
    await python(sandbox, "open('kept', 'w').write('1')")
    look = "import os, tempfile\nassert not os.listdir('.') + os.listdir(tempfile.gettempdir())\n"
    for leave in ("open('own', 'w').write('2')", "pass", "os.mkdir(tempfile.gettempdir() + '/x')", "pass"):
        await python(sandbox, look + leave, fresh=True)
    assert await python(sandbox, "import os\nprint(os.listdir('.'))") == "['kept']\n"


@pytest.mark.sample(1)
async def test_a_program_that_cannot_start_ends_as_in_a_shell(sandbox: Sandbox) -> None:
    result = await sandbox.run(Command(argv=["no-such-program"]), limits=LIMITS)
    assert result.exit_code == 127 and "no-such-program" in result.stderr
    result = await sandbox.run(Command(argv=["./data"], files={"data": b"1"}), limits=LIMITS)
    assert result.exit_code == 126


@pytest.mark.sample(1)
async def test_deadline_kills_all_and_the_sandbox_goes_on(sandbox: Sandbox) -> None:
    before = descendants(os.getpid())
    result = await sandbox.run(Command(code=FORKS), limits=Limits(wall_s=0.5))
    assert result.timed_out and result.signal_name == "SIGKILL" and 0.5 <= result.wall_s < 60
    assert descendants(os.getpid()) <= before
    assert await python(sandbox, "print(1)") == "1\n"


def test_memory_without_control_groups_is_counted_in_bytes() -> None:
    assert 2**20 < memory._used_by(os.getpid()) < 2**40


@pytest.mark.sample(1)
async def test_too_much_memory_is_a_result(limited: Sandbox) -> None:
    limits = Limits(wall_s=20.0, memory_mb=100)
    result = await limited.run(Command(code="x = bytearray(300 << 20)\nprint('got it')"), limits=limits)
    assert not result.ok and "MemoryError" in result.stderr and not result.oom
    code = (
        "import os, time\nfor _ in range(4):\n    if not os.fork():\n        x = bytearray(b'x') * (60 << 20)\n"
        "        time.sleep(5)\n        os._exit(0)\nfor _ in range(4):\n    os.wait()"
    )
    assert (await limited.run(Command(code=code), limits=limits)).oom
    assert await python(limited, "print(1)") == "1\n"


@pytest.mark.sample(1)
async def test_processes_are_limited_and_those_of_others_do_not_count(limited: Sandbox) -> None:
    fork = "import os, time\nfor i in range(60):\n    try:\n        if os.fork() == 0:\n            time.sleep(20)\n"
    fork += "            os._exit(0)\n    except BlockingIOError:\n        break\nprint(i)"
    results = [int(await python(limited, fork, Limits(processes=20), fresh=True)) for _ in range(3)]
    assert all(15 <= count <= 20 for count in results), results


@pytest.mark.sample(1)
async def test_sessions_keep_state_and_end_at_their_deadline(sandbox: Sandbox) -> None:
    interpreter = await sandbox.open_session("python", limits=LIMITS)
    shell = await sandbox.open_session("bash", limits=LIMITS)
    assert (await interpreter.run("x = 20", wall_s=10.0)).stdout == ""
    assert (await interpreter.run("x + 1", wall_s=10.0)).stdout == "21\n"
    error = await interpreter.run("1 / 0", wall_s=10.0)
    assert error.exit_code == 1 and "ZeroDivisionError" in error.stderr
    assert (await shell.run('cd "${TMPDIR:-/tmp}"; y=7; false', wall_s=10.0)).exit_code == 1
    assert (await shell.run('[ "$PWD" = "${TMPDIR:-/tmp}" ]; echo $? $y', wall_s=10.0)).stdout == "0 7\n"
    assert (await interpreter.run("while True: pass", wall_s=0.5)).timed_out
    late = await interpreter.run("1", wall_s=1.0)
    assert late.exit_code == -9 and "ended" in late.stderr
    await interpreter.close()
    assert (await shell.run("echo still here", wall_s=10.0)).stdout == "still here\n"
    assert await python(sandbox, "print(1)") == "1\n"


@pytest.mark.sample(1)
async def test_strays_end_and_sessions_stay(sandbox: Sandbox) -> None:
    before = descendants(os.getpid())
    session = await sandbox.open_session("bash", limits=LIMITS)
    assert (await session.run("sleep 60 & echo $!", wall_s=10.0)).ok
    mine = descendants(os.getpid()) - before
    daemon = "import os, time\nfor _ in range(3):\n    if os.fork() == 0:\n        os.setsid()\n        time.sleep(60)"
    assert (await sandbox.run(Command(code=daemon), limits=LIMITS)).ok
    assert descendants(os.getpid()) - before == mine and len(mine) == 2
    assert await python(sandbox, "print(1)", fresh=True) == "1\n"
    await session.close()
    assert not descendants(os.getpid()) - before


@pytest.mark.sample(1)
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


SPIED = {
    "namespaces": "glob.glob('/proc/[0-9]*/root/work/answer')",
    "landlock": "('../../fresh/work/answer', '../../fresh', '../..')",
}


@pytest.mark.sample(1)
async def test_a_session_cannot_reach_a_fresh_run(backend: NamespaceBackend, sandbox: Sandbox) -> None:
    session = await sandbox.open_session("python", limits=LIMITS)
    spy = f"""
import glob, os, threading
seen = []
def spy():
    while True:
        for path in {SPIED[backend.name]}:
            for look in (os.listdir, lambda path: open(path).read()):
                try:
                    seen.append(look(path))
                except OSError:
                    pass
threading.Thread(target=spy, daemon=True).start()
"""
    assert (await session.run(spy, wall_s=10.0)).ok
    command = Command(code="import time\ntime.sleep(0.5)", files={"answer": b"42"})
    assert (await sandbox.run(command, limits=LIMITS, fresh=True)).ok
    assert (await session.run("seen", wall_s=10.0)).stdout == "[]\n"
    assert (await sandbox.run(command, limits=LIMITS)).ok
    assert "42" in (await session.run("open('answer').read()", wall_s=10.0)).stdout


@pytest.mark.sample(1)
async def test_links_in_the_way_of_files_are_results(sandbox: Sandbox) -> None:
    await python(sandbox, "import os, tempfile\nos.symlink(tempfile.gettempdir(), 'folder')")
    result = await sandbox.run(Command(code="print(1)", files={"folder/x": b"1"}), limits=LIMITS)
    assert result.exit_code == 1 and "could not be written" in result.stderr


@pytest.mark.sample(1)
async def test_names_that_no_file_can_have_are_results(sandbox: Sandbox) -> None:
    for name in ("a\0b", "\ud800", "x" * 300):
        result = await sandbox.run(Command(code="", files={name: b"1"}, outputs=[name]), limits=LIMITS)
        assert result.exit_code == 1 and "could not be written" in result.stderr
        assert (await sandbox.run(Command(code="print(1)", outputs=[name]), limits=LIMITS)).files == {}


@pytest.mark.sample(1)
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
    assert await python(sandbox, "print(1)") == "1\n"
    hoarder = await sandbox.open_session("python", limits=Limits(memory_mb=600))
    assert (await hoarder.run("x = b'x' * (300 << 20)", wall_s=10.0)).ok
    small = Limits(wall_s=20.0, memory_mb=100)
    result = await sandbox.run(Command(code="print(1)"), limits=small)
    assert result.ok or result.oom
    await hoarder.close()
    assert await python(sandbox, "print(1)", small) == "1\n"


@pytest.mark.sample(1)
async def test_cancelling_kills_and_nothing_is_left(backend: NamespaceBackend) -> None:
    await (await backend.create()).close()  # its control group stays, for the next one
    before = Standing.now("cancelled")
    sandbox = await backend.create()
    idle = descendants(os.getpid())
    task = asyncio.create_task(sandbox.run(Command(code=FORKS), limits=Limits(wall_s=600.0)))
    while len(descendants(os.getpid()) - idle) < NUM_FORKED:
        assert not task.done(), task.result()
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(SandboxError, match="has ended"):
        await sandbox.run(Command(code=""), limits=LIMITS)
    await sandbox.close()
    assert wait_for_nothing_left(before, "cancelled", is_expected=lambda _: False, within_s=5.0) == {}
    if isinstance(backend, LandlockBackend):
        assert not os.listdir(f"{backend._zygote._base}/boxes")  # type: ignore[union-attr]


@pytest.mark.sample(1)
async def test_closing_leaves_nothing(backend: NamespaceBackend) -> None:
    await backend.close()
    before = Standing.now("closed")
    backend = await started(type(backend)())
    sandboxes = [await backend.create() for _ in range(3)]
    await sandboxes[0].run(Command(code="print(1)"), limits=LIMITS)
    await sandboxes[0].close()
    await backend.close()  # with two of them open
    assert wait_for_nothing_left(before, "closed", is_expected=lambda _: False, within_s=5.0) == {}


@pytest.mark.sample(1)
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


@pytest.mark.sample(1)
async def test_a_creation_that_is_cancelled_does_not_spoil_the_next_one(backend: NamespaceBackend) -> None:
    before = descendants(os.getpid())
    for _ in range(5):
        task = asyncio.create_task(backend.create())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    sandbox = await backend.create()
    assert await python(sandbox, "print(1)") == "1\n"
    await sandbox.close()
    deadline = time.monotonic() + 5
    while descendants(os.getpid()) - before:
        assert time.monotonic() < deadline, "boxes that nobody has"
        await asyncio.sleep(0.02)


@pytest.mark.sample(1)
async def test_a_zygote_that_dies_is_replaced(backend: NamespaceBackend) -> None:
    assert backend._zygote is not None
    sandbox = await backend.create()
    os.kill(backend._zygote._process.pid, signal.SIGKILL)
    with pytest.raises(SandboxError, match="died"):
        await sandbox.run(Command(argv=["sleep", "60"]), limits=Limits(wall_s=60.0))
    await sandbox.close()
    other = await backend.create()
    assert await python(other, "print(1)") == "1\n"
    await other.close()


@pytest.mark.parametrize("kind", [NamespaceBackend, LandlockBackend])
async def test_a_backend_that_is_not_started_says_so(kind: type[NamespaceBackend]) -> None:
    with pytest.raises(SandboxError, match="not started"):
        await kind().create()


@pytest.mark.sample(2)
@pytest.mark.parametrize("is_trainer", [True, False], ids=["trainer", "zygote"])
@pytest.mark.parametrize("kind", ["namespaces", "landlock"])
async def test_who_is_killed_takes_everything_along_and_the_next_run_sweeps_up(
    tmp_path: Path, kind: str, is_trainer: bool
) -> None:
    code = f"""
import asyncio, os, time
from verl_agentic.sandbox.boxes import reaper
from verl_agentic.sandbox.interface import Command, Limits
from verl_agentic.sandbox.pools.backends import make_backend
async def main():
    backend = make_backend({kind!r}, at_least="landlock")
    await backend.start()
    idle, busy = await backend.create(), await backend.create()
    task = asyncio.create_task(busy.run(Command(code={FORKS!r}), limits=Limits(wall_s=600.0)))
    await idle.run(Command(code="1"), limits=Limits())
    if os.fork() == 0:
        time.sleep(60)  # holds the sockets open
        os._exit(0)
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
    zygote, owner = process.stdout.readline().strip().split(" ", 1)
    if zygote == "no":
        process.wait()
        process.stdout.close()
        pytest.skip(owner)
    while len(everything := descendants(process.pid)) < 4 + NUM_FORKED:  # with the zygote, two boxes and the holder
        assert process.poll() is None
        await asyncio.sleep(0.02)
    running = {pid for pid in everything if "holds the sockets" not in command_line(pid)}
    os.kill(process.pid if is_trainer else int(zygote), signal.SIGKILL)
    deadline = time.monotonic() + 30  # before the sockets are closed
    while (left := {pid for pid in running if lives(pid)}) and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    for pid in left | (everything - running):
        os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait()
    process.stdout.close()
    assert not left and reaper.is_dead(owner)
    reaper.reap()
    assert not [name for name in os.listdir("/tmp") if owner in name]
    assert not [folder for folder in cgroups.all_folders() if folder.name.startswith(owner)]


_REACH = """
import array, ctypes, glob, os, signal, socket, sys
word = "hidden test: expects 4711"
libc = ctypes.CDLL(None)
def attempt(step):
    try:
        step()
    except (OSError, ValueError):
        pass
def write(path):
    with open(path, "w") as file:
        file.write(word)
def send():
    client = socket.socket(socket.AF_UNIX)
    client.connect("\\0neighbour")
    client.sendall(word.encode())
pids = []
attempt(lambda: pids.extend(int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()))
for pid in {*pids, *range(1, 12), *$PIDS} - {os.getpid()}:
    for path in (f"/proc/{pid}/root/work/leak", f"/proc/{pid}/cwd/leak", f"/proc/{pid}/fd/1", f"/proc/{pid}/fd/4"):
        attempt(lambda: write(path))
    attempt(lambda: os.kill(pid, signal.SIGUSR1))
    attempt(lambda: libc.ptrace(16, pid, 0, 0))
    attempt(lambda: os.setpriority(os.PRIO_PROCESS, pid, 7))
attempt(send)
for _ in range(77):
    if os.fork() == 0:
        os._exit(0)
    os.wait()
print(pids)
"""
_WAIT = """
import os, signal, socket, threading, time
heard = []
signal.signal(signal.SIGUSR1, lambda *_: heard.append("signal"))
try:
    server = socket.socket(socket.AF_UNIX)
    server.bind("\\0neighbour")
    server.listen()
    threading.Thread(target=lambda: heard.append(server.accept()[0].recv(99)), daemon=True).start()
except OSError:
    pass
def number():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.wait()
    return pid
before = number()
print(os.getpid())
"""


@pytest.mark.sample(1)
async def test_a_session_and_a_grader_beside_it_leave_each_other_nothing(backend: NamespaceBackend) -> None:
    sandbox = await backend.create()
    limits = Limits(wall_s=20.0, processes=100)
    alone = await sandbox.run(Command(code="import os\nprint(os.getpid())"), limits=limits, fresh=True)
    session = await sandbox.open_session("python", limits=limits)
    pid = (await session.run(_WAIT, wall_s=10.0)).stdout.strip()
    for outputs in ((), ("out",)):
        command = Command(code=_REACH.replace("$PIDS", f"[{pid}]"), outputs=outputs)
        result = await sandbox.run(command, limits=limits, fresh=True)
        assert result.ok and result.stdout in ("[1]\n", "[]\n"), result  # sees nobody but its process 1
    told = await session.run("time.sleep(0.3)\nprint(heard, os.listdir('.'), os.nice(0))", wall_s=10.0)
    assert told.stdout == "[] [] 0\n" and told.stderr == ""
    if backend.name == "namespaces":
        assert (await session.run("print(number() - before)", wall_s=10.0)).stdout == "1\n"
        beside = await sandbox.run(Command(code="import os\nprint(os.getpid())"), limits=limits, fresh=True)
        assert beside.stdout == alone.stdout
    await sandbox.close()


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("end", "exit_code"),
    [
        ("os._exit(7)", 7),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9),
        ("os.abort()", -6),
        ("os.fork() or time.sleep(60)", 0),
        ("raise SystemExit(3)", 3),
    ],
)
async def test_a_program_beside_a_session_ends_as_it_would_alone(sandbox: Sandbox, end: str, exit_code: int) -> None:
    session = await sandbox.open_session("python", limits=LIMITS)
    command = Command(code=f"import os, signal, time\nopen('out', 'w').write('x')\n{end}", outputs=["out"])
    result = await sandbox.run(command, limits=LIMITS, fresh=True)
    assert (result.exit_code, result.files, result.timed_out) == (exit_code, {"out": b"x"}, False)
    loop = Command(code="import os\nos.fork()\nwhile True:\n    pass")
    result = await sandbox.run(loop, limits=replace(LIMITS, wall_s=0.5), fresh=True)
    assert result.timed_out and result.exit_code == -9
    assert (await session.run("print(1)", wall_s=10.0)).stdout == "1\n"
