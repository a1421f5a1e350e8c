"""Guarantees of the docker backend on a real engine; without one these tests are skipped, and say why.

VERL_AGENTIC_REQUIRE_DOCKER=1 makes a missing engine a failure. VERL_AGENTIC_DOCKER_IMAGE names the image; the default
one is made of this machine's own Python when the engine does not have it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.base.errors import ConfigError, MissingDependencyError, SandboxError, SandboxUnavailableError
from verl_agentic.sandbox.docker import docker_engine, seccomp_profile
from verl_agentic.sandbox.docker.attached_stream import StdoutReader
from verl_agentic.sandbox.docker.docker_backend import DockerBackend, DockerConfig
from verl_agentic.sandbox.interface import Command, CommandResult, Limits, Sandbox, Tree

IMAGE = os.environ.get("VERL_AGENTIC_DOCKER_IMAGE", "verl-agentic-test:latest")
LIMITS = Limits(wall_s=30.0)


@pytest.fixture(scope="module")
def backend(api: Any) -> Iterator[DockerBackend]:
    made = DockerBackend(DockerConfig(image=IMAGE))
    asyncio.run(made.start())
    yield made
    asyncio.run(made.close())
    assert _containers(api, made) == []


@pytest.fixture
async def sandbox(backend: DockerBackend) -> AsyncIterator[Any]:
    made = await backend.create()
    yield made
    await made.close()


def _containers(api: Any, backend: DockerBackend) -> list[dict[str, Any]]:
    return api.containers(all=True, filters={"label": f"verl-agentic.group={backend._group}"})


async def run(sandbox: Sandbox, code: str, *, fresh: bool = True, **limits: Any) -> CommandResult:
    result = await sandbox.run(Command(code=code), limits=Limits(**{"wall_s": 30.0, **limits}), fresh=fresh)
    assert "Traceback" not in result.stderr, result.stderr
    return result


async def test_each_sandbox_may_have_its_own_image(api: Any, backend: DockerBackend, tmp_path: Path) -> None:
    name, _, _ = IMAGE.partition(":")
    api.tag(IMAGE, name, "another")
    (tmp_path / "a.txt").write_text("1")
    sandbox = await backend.create(image=f"{name}:another", trees=[Tree(source=tmp_path, at="tree")])
    try:
        assert (await run(sandbox, "print(open('tree/a.txt').read())", fresh=False)).stdout == "1\n"
        images = sorted(container["Image"] for container in _containers(api, backend))
        assert f"{name}:another" in images
    finally:
        await sandbox.close()
        api.remove_image(f"{name}:another")
    with pytest.raises(SandboxUnavailableError, match="has no image"):
        await backend.create(image="localhost:1/none:none")


async def test_code_has_no_rights_no_network_and_no_place_to_write(sandbox: Sandbox) -> None:
    code = """
import json, os
status = dict(line.rstrip().split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
def writes(path):
    try:
        open(path + "/probe", "w").close()
    except OSError as error:
        return error.strerror
print(json.dumps({
    "user": os.getuid(), "caps": [status["CapEff"], status["CapBnd"]],
    "flags": [status["NoNewPrivs"], status["Seccomp"]],
    "interfaces": os.listdir("/sys/class/net"),
    "routes": open("/proc/net/route").read().splitlines()[1:],
    "written": [writes(path) for path in ("/", "/usr", "/etc", "/dev")], "environ": sorted(os.environ),
    "processes": [name for name in os.listdir("/proc") if name.isdigit()],
}))
"""
    found = json.loads((await run(sandbox, code)).stdout)
    assert found["user"] >= 20_000 and found["caps"] == ["0" * 16] * 2 and found["flags"] == ["1", "2"]
    assert found["interfaces"] == ["lo"] and found["routes"] == []
    assert found["written"][:3] == ["Read-only file system"] * 3 and found["written"][3] is not None
    assert found["environ"] == ["HOME", "LANG", "PATH", "PYTHONDONTWRITEBYTECODE"] and len(found["processes"]) == 2


async def test_what_no_code_needs_is_denied(sandbox: Sandbox) -> None:
    code = """
import ctypes, os, resource
libc = ctypes.CDLL(None, use_errno=True)
limits = (ctypes.c_ulong * 2)(1, 1)
calls = {
    "io_uring_setup": (425, 1, ctypes.create_string_buffer(256)), "unshare": (272, 0x10000000), "bpf": (321, 0, 0, 0),
    "ptrace": (101, 16, 1, 0, 0), "keyctl": (250, 0, -3, 0), "mount": (165, 0, 0, 0, 0, 0), "userfaultfd": (323, 0),
    "limit of process 1": (302, 1, int(resource.RLIMIT_CPU), limits, 0),
}
for name, (number, *arguments) in calls.items():
    print(name, libc.syscall(number, *arguments), ctypes.get_errno() in (1, 38))
for path in ("/proc/1/mem", "/proc/1/environ", "/proc/1/fd"):
    print(path, -1, not os.access(path, os.R_OK))
"""
    lines = (await run(sandbox, code)).stdout.splitlines()
    assert len(lines) == 11 and all(line.endswith(" -1 True") for line in lines), lines


async def test_too_much_memory_ends_the_code_and_not_the_sandbox(sandbox: Sandbox) -> None:
    grab = "x = bytearray(400 * 2**20)\nprint(len(x))"
    assert (await run(sandbox, grab)).stdout == f"{400 * 2**20}\n"
    result = await run(sandbox, grab, memory_mb=200)
    assert result.oom and result.exit_code == -signal.SIGKILL and not result.timed_out and result.stdout == ""
    assert not (await run(sandbox, "print(1)", memory_mb=200)).oom
    together = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        x = bytearray(80 * 2**20)
        time.sleep(2)
        os._exit(0)
time.sleep(2)
"""
    assert (await run(sandbox, together, memory_mb=200)).oom


async def test_a_fork_bomb_is_bounded_and_cleared_away(sandbox: Sandbox) -> None:
    code = """
import os, time
count = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(600)
        count += 1
except OSError:
    print(count)
"""
    assert 10 <= int((await run(sandbox, code, processes=20)).stdout) <= 20
    assert 50 <= int((await run(sandbox, code, processes=60)).stdout) <= 60


async def test_what_outlives_the_deadline_is_killed(sandbox: Sandbox) -> None:
    code = """
import os, signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
print("started", flush=True)
while True:
    pass
"""
    started = time.monotonic()
    result = await run(sandbox, code, wall_s=1.0)
    assert result.timed_out and result.stdout == "started\n" and time.monotonic() - started < 10
    assert (await run(sandbox, "import os; print(sum(n.isdigit() for n in os.listdir('/proc')))")).stdout == "2\n"


async def test_the_end_of_process_1_cannot_be_brought_about(sandbox: Sandbox) -> None:
    code = "import os\nfor n in range(1, 65):\n    os.kill(1, n)\nprint('alive')"
    first = sandbox._box  # type: ignore[attr-defined]
    assert (await run(sandbox, code)).stdout == "alive\n"
    assert (await run(sandbox, "print(1)")).stdout == "1\n" and sandbox._box is first  # type: ignore[attr-defined]


LITTER = {
    "files": "for f in ('/tmp', '/work', '/dev/shm'): open(f + '/left', 'w').write('x')",
    "locked folders": "import os; os.makedirs('/tmp/a/b/c'); os.chmod('/tmp/a/b', 0); os.chmod('/tmp/a', 0)",
    "deep folders": "import os; os.chdir('/tmp')\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')",
    "links": "import os; os.symlink('/usr', '/tmp/usr'); os.symlink('/tmp', '/tmp/loop')",
    "System V": "import ctypes as t; c = t.CDLL(None)\nc.shmget(7, 64, 950); c.semget(7, 1, 950); c.msgget(7, 950)",
    "processes": "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True)",
}


@pytest.mark.parametrize("kind", LITTER)
async def test_an_execution_leaves_nothing_to_the_next_one(sandbox: Sandbox, kind: str) -> None:
    first = sandbox._box  # type: ignore[attr-defined]
    await run(sandbox, LITTER[kind])
    look = (
        "import os; print([os.listdir(f) for f in ('/tmp', '/work', '/dev/shm')], len(os.popen('ps -e').readlines()))"
    )
    await run(sandbox, look)
    seen = (await run(sandbox, look)).stdout
    assert seen.startswith("[[], [], []]") and sandbox._box is first  # type: ignore[attr-defined]
    code = "import os; print(sum(n.isdigit() for n in os.listdir('/proc')))"
    assert (await run(sandbox, code)).stdout == "2\n"


STAINS = {
    "priority": "import os; os.setpriority(os.PRIO_PROCESS, 1, 15); print(True)",
    "processors": "import os; os.sched_setaffinity(1, {0}); print(True)",
}


@pytest.mark.parametrize("kind", STAINS)
async def test_a_container_that_is_not_as_before_is_not_used_again(
    sandbox: Sandbox, api: Any, backend: DockerBackend, kind: str
) -> None:
    first = sandbox._box  # type: ignore[attr-defined]
    assert (await run(sandbox, STAINS[kind])).stdout == "True\n"
    assert first.left and not first.is_usable
    assert (await run(sandbox, "print(1)")).stdout == "1\n"
    assert sandbox._box is not first and len(_containers(api, backend)) == 1  # type: ignore[attr-defined]


async def test_an_episode_keeps_its_files_and_single_executions_do_not_see_them(sandbox: Sandbox) -> None:
    await run(sandbox, "open('note', 'w').write('mine')", fresh=False)
    assert (await run(sandbox, "import os; print(os.listdir())")).stdout == "[]\n"
    assert (await run(sandbox, "print(open('note').read())", fresh=False)).stdout == "mine\n"


async def test_files_go_in_and_come_out(sandbox: Sandbox) -> None:
    command = Command(
        argv=["python3", "-c", "import sys; open('sub/out', 'w').write(sys.stdin.read() + open('sub/in').read())"],
        stdin=b"a",
        files={"sub/in": b"b"},
        outputs=["sub/out", "missing"],
        env={"X": "1"},
    )
    result = await sandbox.run(command, limits=LIMITS, fresh=True)
    assert result.ok and dict(result.files) == {"sub/out": b"ab"}


async def test_a_snapshot_brings_back_modes_links_and_contents(sandbox: Sandbox) -> None:
    await run(
        sandbox,
        "import os; os.makedirs('a/b'); open('a/b/f', 'w').write('1'); os.symlink('b', 'a/l'); os.chmod('a/b/f', 0)",
        fresh=False,
    )
    number = await sandbox.snapshot()
    await run(sandbox, "import shutil; shutil.rmtree('a'); open('other', 'w').write('2')", fresh=False)
    await sandbox.reset(number)
    code = "import os; print(os.listdir(), os.readlink('a/l'), oct(os.stat('a/b/f').st_mode & 0o777))\n"
    code += "os.chmod('a/b/f', 0o600); print(open('a/b/f').read())"
    assert (await run(sandbox, code, fresh=False)).stdout == "['a'] b 0o0\n1\n"
    await sandbox.reset()
    assert (await run(sandbox, "import os; print(os.listdir())", fresh=False)).stdout == "[]\n"
    with pytest.raises(ConfigError, match="got 2"):
        await sandbox.reset(2)


async def test_sessions_keep_their_state_and_end_at_the_deadline(sandbox: Sandbox) -> None:
    python = await sandbox.open_session("python", limits=LIMITS)
    bash = await sandbox.open_session("bash", limits=LIMITS)
    await python.run("x = 20", wall_s=10)
    await bash.run("y=22; cd /tmp", wall_s=10)
    assert (await python.run("x + 1", wall_s=10)).stdout == "21\n"
    assert (await bash.run("echo $y $PWD", wall_s=10)).stdout == "22 /tmp\n"
    assert (await python.run("while True: pass", wall_s=0.5)).timed_out
    assert (await python.run("x", wall_s=10)).exit_code == -signal.SIGKILL


async def test_endless_output_is_cut(sandbox: Sandbox) -> None:
    result = await run(sandbox, "while True: print('x' * 1000)", wall_s=1.0, output_bytes=5_000)
    assert result.timed_out and result.stdout_truncated and 5_000 < len(result.stdout) < 5_100


async def test_cancelling_a_call_removes_the_container(backend: DockerBackend, api: Any) -> None:
    sandbox = await backend.create()
    task = asyncio.create_task(run(sandbox, "import time; time.sleep(600)", fresh=False))
    await asyncio.sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(SandboxError, match="has ended"):
        await run(sandbox, "print(1)", fresh=False)
    await sandbox.close()
    assert _containers(api, backend) == []


async def test_cancelling_a_creation_leaves_no_container(backend: DockerBackend, api: Any) -> None:
    for delay_s in (0.0, 0.05, 0.15, 0.3):
        task = asyncio.create_task(backend.create())
        await asyncio.sleep(delay_s)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await (await task).close()
    deadline = time.monotonic() + 20
    while backend._makes and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    assert _containers(api, backend) == []


async def test_a_container_that_somebody_kills_is_a_failure_of_the_sandbox(
    sandbox: Sandbox, backend: DockerBackend, api: Any
) -> None:
    task = asyncio.create_task(run(sandbox, "import time; time.sleep(600)"))
    await asyncio.sleep(0.5)
    api.kill(_containers(api, backend)[0]["Id"])
    with pytest.raises(SandboxError, match="died"):
        await task
    assert (await run(sandbox, "print(1)")).stdout == "1\n"


OWNER = """
import asyncio, sys
from verl_agentic.sandbox.interface import Command, Limits
from verl_agentic.sandbox.docker.docker_backend import DockerBackend, DockerConfig
async def main():
    backend = DockerBackend(DockerConfig(image=sys.argv[1]))
    await backend.start()
    sandbox = await backend.create()
    print(backend._group, flush=True)
    await sandbox.run(Command(code="import time; time.sleep(600)"), limits=Limits(wall_s=600.0))
asyncio.run(main())
"""


async def test_a_killed_run_leaves_no_code_running_and_the_next_one_clears_up(api: Any, backend: DockerBackend) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, IMAGE], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner, owner.stdout:
        label = f"verl-agentic.group={owner.stdout.readline().strip()}"
        await asyncio.sleep(0.5)
        mine = await backend.create()
        owner.kill()
        owner.wait()
    deadline = time.monotonic() + 20
    while api.containers(filters={"label": label}):
        assert time.monotonic() < deadline, "its container still runs"
        await asyncio.sleep(0.05)
    engine = docker_engine.Engine(None)
    engine.reap()
    engine.close()
    assert api.containers(all=True, filters={"label": label}) == []
    assert (await run(mine, "print(1)")).stdout == "1\n"
    await mine.close()


async def test_an_image_is_built_from_a_folder_once(api: Any, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {IMAGE}\nENV GREETING=hello\nCOPY note /note\nVOLUME /data\n")
    (tmp_path / "note").write_text("built")
    names = []
    for _ in range(2):
        backend = DockerBackend(DockerConfig(build=tmp_path))
        await backend.start()
        names.append(backend._image)
        sandbox = await backend.create()
        code = "import os; print(open('/note').read(), os.environ['GREETING'], os.access('/data', os.W_OK))"
        assert (await run(sandbox, code)).stdout == "built hello False\n"
        await sandbox.close()
        await backend.close()
    assert names[0] == names[1]
    api.remove_image(names[0])


@pytest.fixture(scope="module")
def cold(api: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerBackend]:
    """A backend whose image has no Python."""
    folder = tmp_path_factory.mktemp("cold")
    (folder / "Dockerfile").write_text(f"FROM {IMAGE}\nRUN rm -rf /usr/local/bin\n")
    made = DockerBackend(DockerConfig(build=folder))
    asyncio.run(made.start())
    yield made
    asyncio.run(made.close())
    api.remove_image(made._image)


async def test_an_image_without_python_takes_programs(cold: DockerBackend) -> None:
    sandbox = await cold.create()
    try:
        result = await sandbox.run(Command(argv=["tr", "a", "b"], stdin=b"banana"), limits=LIMITS)
        assert result.ok and result.stdout == "bbnbnb"
        slow = Command(argv=["sh", "-c", "echo on; (sleep 600 &) ; cat /dev/zero > /tmp/x; sleep 600"])
        result = await sandbox.run(slow, limits=Limits(wall_s=4.0, file_mb=1))
        assert result.timed_out and result.stdout == "on\n"
        look = Command(argv=["sh", "-c", "stat -c %s /tmp/x; ps -e -o stat=,comm= | grep -c '^S.*sleep'"])
        assert (await sandbox.run(look, limits=LIMITS)).stdout == f"{2**20}\n0\n"
        seen = await sandbox.run(Command(argv=["sh", "-c", "ls /tmp; id -u; exit 3"]), limits=LIMITS, fresh=True)
        assert seen.exit_code == 3 and int(seen.stdout) >= 20_000
        with pytest.raises(ConfigError, match="without Python"):
            await sandbox.run(Command(code="print(1)"), limits=LIMITS)
    finally:
        await sandbox.close()


async def test_programs_without_python_are_bounded(cold: DockerBackend) -> None:
    sandbox = await cold.create()
    try:
        flood = await sandbox.run(
            Command(argv=["sh", "-c", "while :; do echo xxx; done"]), limits=Limits(wall_s=4.0, output_bytes=1_000)
        )
        assert flood.timed_out and flood.stdout_truncated and 1_000 < len(flood.stdout) < 1_100
        grab = Command(argv=["sh", "-c", "head -c 200000000 /dev/zero | tail -c 200000000 | wc -c"])
        assert (await sandbox.run(grab, limits=LIMITS)).stdout == "200000000\n"
        assert (await sandbox.run(grab, limits=Limits(memory_mb=64, wall_s=30.0))).oom
    finally:
        await sandbox.close()


async def test_what_cannot_be_is_refused_with_the_way_out(api: Any, tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailableError, match="'nothing'"):
        await DockerBackend(DockerConfig(image=IMAGE, runtime="nothing")).start()
    with pytest.raises(SandboxUnavailableError, match="has no image"):
        await DockerBackend(DockerConfig(image="localhost:1/nothing:nowhere")).start()
    with pytest.raises(ConfigError, match="folder with a Dockerfile"):
        await DockerBackend(DockerConfig(build=tmp_path)).start()
    with pytest.raises(SandboxError, match="not started"):
        await DockerBackend().create()


async def test_no_engine_and_no_package_say_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="host"):
        DockerConfig(network="host")
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'verl-agentic\[docker\]'"):
        await DockerBackend().start()


async def test_an_absent_engine_is_named(tmp_path: Path) -> None:
    pytest.importorskip("docker")
    with pytest.raises(SandboxUnavailableError, match="unix://"):
        await DockerBackend(DockerConfig(url=f"unix://{tmp_path}/none.sock")).start()


@pytest.mark.parametrize("size", [1, 3, 7, 4096])
async def test_the_stream_is_taken_apart_wherever_it_is_cut(size: int) -> None:
    pieces = [(1, b"first"), (2, b"warning"), (1, b""), (1, b"second" * 100)]
    stream = b"".join(bytes([kind, 0, 0, 0]) + len(data).to_bytes(4, "big") + data for kind, data in pieces)
    reader = StdoutReader()
    for start in range(0, len(stream), size):
        reader.feed_data(stream[start : start + size])
    reader.feed_eof()
    assert await reader.read() == b"first" + b"second" * 100 and reader.stderr == b"warning"


def test_the_profile_allows_by_name_and_not_the_way_around_filters() -> None:
    profile = json.loads(seccomp_profile.profile())
    allowed = {name for rule in profile["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO" and {"read", "execve", "wait4"} <= allowed
    assert not allowed & {"io_uring_setup", "ptrace", "mount", "unshare", "setns", "bpf", "keyctl", "clone3", "mknod"}


def test_only_containers_of_ended_owners_are_orphans() -> None:
    mine = docker_engine._build_owner_labels()
    number, _, namespace = mine["verl-agentic.owner"].split("-")
    ended = {**mine, "verl-agentic.owner": f"{number}-1-{namespace}"}
    unseen = {**mine, "verl-agentic.owner": f"{number}-1-1"}
    elsewhere = {**ended, "verl-agentic.boot": "another"}
    for labels, state, is_orphan in [
        (mine, "running", False),
        (mine, "exited", False),
        (ended, "running", True),
        (unseen, "running", False),
        (unseen, "exited", True),
        (elsewhere, "running", False),
        (elsewhere, "exited", True),
    ]:
        assert docker_engine._is_orphan({"Labels": labels, "State": state}) is is_orphan
