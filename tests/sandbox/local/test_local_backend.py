"""Limits of the local sandbox on time, memory and output; its results; and its files between runs."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.base.errors import ConfigError, SandboxError
from verl_agentic.sandbox.interface import Command, CommandResult, Limits
from verl_agentic.sandbox.local import local_backend
from verl_agentic.sandbox.local.local_backend import LocalBackend, LocalSandbox

LIMITS = Limits(wall_s=20.0)


@pytest.fixture
async def backend() -> AsyncIterator[LocalBackend]:
    made = LocalBackend(max_running=4)
    await made.start()
    yield made
    await made.close()


@pytest.fixture
async def sandbox(backend: LocalBackend) -> LocalSandbox:
    return await backend.create()


async def run(sandbox: LocalSandbox, code: str, limits: Limits = LIMITS) -> CommandResult:
    return await sandbox.run(Command(code=code), limits=limits)


async def test_code_runs_and_its_output_comes_back(sandbox: LocalSandbox) -> None:
    result = await run(sandbox, "import sys\nprint(17 * 3)\nprint('note', file=sys.stderr)")
    assert (result.stdout, result.stderr, result.exit_code, result.ok) == ("51\n", "note\n", 0, True)
    assert 0 < result.cpu_s < 10


@pytest.mark.slow
async def test_peak_memory_is_the_programs_or_not_told(sandbox: LocalSandbox) -> None:
    ours_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    assert (await run(sandbox, "pass")).peak_memory_mb == 0  # less than ours: the kernel cannot tell
    code = f"x = bytearray({ours_mb + 100} * 2**20)"
    peak = (await run(sandbox, code, Limits(wall_s=20.0, memory_mb=ours_mb + 1_000))).peak_memory_mb
    assert ours_mb + 100 <= peak < ours_mb + 300


async def test_a_program_gets_arguments_stdin_files_and_environment_and_gives_files_back(sandbox: LocalSandbox) -> None:
    script = 'cat; cat in/data.txt; echo "$NAME" > out.txt; ln -s out.txt link.txt; exit 3'
    command = Command(
        argv=["bash", "-c", script],
        stdin=b"from stdin, ",
        files={"in/data.txt": b"from a file"},
        outputs=["out.txt", "link.txt", "missing.txt"],
        env={"NAME": "value"},
    )
    result = await sandbox.run(command, limits=LIMITS)
    assert (result.stdout, result.exit_code, result.files) == ("from stdin, from a file", 3, {"out.txt": b"value\n"})


async def test_code_reads_stdin_and_imports_the_files_that_were_given(sandbox: LocalSandbox) -> None:
    command = Command(code="import helper\nprint(helper.X + input())", stdin=b"b\n", files={"helper.py": b"X = 'a'"})
    assert (await sandbox.run(command, limits=LIMITS)).stdout == "ab\n"


async def test_files_stay_between_runs_and_a_fresh_run_neither_sees_nor_leaves_any(sandbox: LocalSandbox) -> None:
    await run(sandbox, "open('kept', 'w').write('1')")
    fresh = await sandbox.run(
        Command(code="import os\nprint(os.listdir())\nopen('new', 'w')"), limits=LIMITS, fresh=True
    )
    assert fresh.stdout == "[]\n"
    assert (await run(sandbox, "import os\nprint(os.listdir())")).stdout == "['kept']\n"


async def test_a_snapshot_brings_the_working_folder_back(sandbox: LocalSandbox) -> None:
    await run(sandbox, "import os\nos.mkdir('d')\nopen('d/a', 'w').write('1')")
    snapshot = await sandbox.snapshot()
    await run(sandbox, "open('d/a', 'w').write('2')\nopen('b', 'w')")
    await sandbox.reset(snapshot)
    assert (await run(sandbox, "import os\nprint(os.listdir(), open('d/a').read())")).stdout == "['d'] 1\n"
    await sandbox.reset()
    assert (await run(sandbox, "import os\nprint(os.listdir())")).stdout == "[]\n"
    with pytest.raises(ConfigError, match="got 2"):
        await sandbox.reset(2)


async def test_an_error_of_the_code_is_a_result_that_shows_only_the_codes_frames(sandbox: LocalSandbox) -> None:
    result = await run(sandbox, "print('before')\n1 / 0")
    assert result.stdout == "before\n" and not result.ok and result.exit_code == 1
    assert result.stderr == (
        "Traceback (most recent call last):\n"
        '  File "main.py", line 2, in <module>\n    1 / 0\n    ~~^~~\n'
        "ZeroDivisionError: division by zero\n"
    )


async def test_a_program_that_is_not_there_is_a_result(sandbox: LocalSandbox) -> None:
    result = await sandbox.run(Command(argv=["no_such_program"]), limits=LIMITS)
    assert (result.exit_code, result.stderr) == (127, "no_such_program: No such file or directory\n")


async def test_an_endless_loop_and_its_children_are_killed_at_the_wall_limit(sandbox: LocalSandbox) -> None:
    code = "import os, time\nif os.fork() == 0:\n    time.sleep(600)\nprint(os.getpid(), flush=True)\nwhile True: pass"
    started = time.monotonic()
    result = await run(sandbox, code, Limits(wall_s=1.0))
    assert result.timed_out and not result.ok and result.signal_name == "SIGKILL"
    assert time.monotonic() - started < 10
    await _wait_for_the_end_of_session(result.stdout.strip())


async def test_a_child_that_holds_the_pipes_does_not_delay_the_end(sandbox: LocalSandbox) -> None:
    code = "import os, time\nif os.fork() == 0:\n    time.sleep(600)\nprint(os.getpid())"
    result = await run(sandbox, code)
    assert result.ok and result.wall_s < 10
    await _wait_for_the_end_of_session(result.stdout.strip())


async def _wait_for_the_end_of_session(sid: str) -> None:
    deadline = time.monotonic() + 5
    while True:
        group = subprocess.run(["ps", "-o", "pid=,stat=", "--sid", sid], capture_output=True, text=True)
        if not [line for line in group.stdout.splitlines() if " Z" not in line]:
            return
        assert time.monotonic() < deadline, "a process still runs"
        await asyncio.sleep(0.02)


async def test_memory_is_bounded(sandbox: LocalSandbox) -> None:
    result = await run(sandbox, "x = bytearray(900 * 2**20)\nprint('got it')", Limits(memory_mb=256))
    assert "MemoryError" in result.stderr and "got it" not in result.stdout


async def test_cpu_time_is_bounded(sandbox: LocalSandbox) -> None:
    result = await run(sandbox, "while True: pass", Limits(wall_s=30.0, cpu_s=1))
    assert result.exit_code < 0 and not result.timed_out


async def test_files_are_bounded_in_size_and_number(sandbox: LocalSandbox) -> None:
    code = "open('f', 'wb').write(bytes(3 * 2**20))"
    assert "OSError" in (await run(sandbox, code, Limits(file_mb=1))).stderr
    code = "x = [open('/dev/null') for _ in range(100)]"
    assert "Too many open files" in (await run(sandbox, code, Limits(open_files=50))).stderr


@pytest.mark.slow
async def test_endless_output_is_cut_and_costs_no_memory(sandbox: LocalSandbox) -> None:
    result = await run(sandbox, "while True: print('x' * 1000)", Limits(wall_s=1.0, output_bytes=5_000))
    assert 5_000 < len(result.stdout) < 5_100 and result.timed_out
    assert result.stdout_truncated and not result.stderr_truncated


async def test_the_code_sees_no_environment_variable_of_the_host(
    sandbox: LocalSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    result = await run(sandbox, "import os\nprint(sorted(os.environ))")
    assert result.stdout.strip() == "['HOME', 'LANG', 'PATH', 'PYTHONDONTWRITEBYTECODE']"


async def test_cancelling_the_call_kills_the_code(sandbox: LocalSandbox, tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    code = f"import os, time\nopen({str(marker)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
    task = asyncio.create_task(run(sandbox, code))
    while not (marker.exists() and marker.read_text()):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await _wait_for_the_end_of(int(marker.read_text()))


async def _wait_for_the_end_of(pid: int) -> None:
    deadline = time.monotonic() + 5
    while _is_running(pid):
        assert time.monotonic() < deadline, "the code still runs"
        await asyncio.sleep(0.01)


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"  # what has ended may wait for its parent, or for init


async def test_code_that_is_no_text_or_no_python_is_a_result(sandbox: LocalSandbox) -> None:
    assert not (await run(sandbox, "\ud800")).ok
    assert "SyntaxError" in (await run(sandbox, "print(")).stderr


async def test_no_more_processes_run_than_allowed() -> None:
    backend = LocalBackend(max_running=1)
    await backend.start()
    sandbox = await backend.create()
    code = "import time; a = time.monotonic(); time.sleep(0.2); print(a, time.monotonic())"
    results = await asyncio.gather(*(run(sandbox, code) for _ in range(3)))
    await backend.close()
    spans = sorted(tuple(map(float, r.stdout.split())) for r in results)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


async def test_an_interpreter_keeps_its_state_and_its_folder_over_calls(sandbox: LocalSandbox) -> None:
    await run(sandbox, "open('helper.py', 'w').write('X = 5')")
    session = await sandbox.open_session("python", limits=LIMITS)
    assert (await session.run("import helper\nx = helper.X", wall_s=10)).ok
    assert (await session.run("x * 2", wall_s=10)).stdout == "10\n"
    failed = await session.run("1 / 0", wall_s=10)
    assert failed.exit_code == 1 and failed.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert (await session.run("x", wall_s=10)).stdout == "5\n"
    await session.close()


async def test_a_shell_keeps_its_folder_and_variables_over_calls(sandbox: LocalSandbox) -> None:
    session = await sandbox.open_session("bash", limits=LIMITS)
    await session.run("mkdir d; cd d; X=7", wall_s=10)
    assert (await session.run("echo $X; basename $PWD; false", wall_s=10)).stdout == "7\nd\n"
    assert (await session.run("false", wall_s=10)).exit_code == 1
    ended = await session.run("sleep 600 & echo $!; exit 4", wall_s=10)
    assert ended.exit_code == 4
    await _wait_for_the_end_of(int(ended.stdout))


@pytest.mark.sample(5)
@pytest.mark.parametrize("num_open", range(50, 66, 3))
@pytest.mark.parametrize("kind", ["bash", "python"])
async def test_a_trainer_may_have_many_files_open(sandbox: LocalSandbox, kind: Any, num_open: int) -> None:
    opened = []
    try:
        while not opened or opened[-1] < num_open:
            opened.append(os.open(os.devnull, os.O_RDONLY))
        session = await sandbox.open_session(kind, limits=LIMITS)
        listed = "import os; print(*os.listdir('/proc/self/fd'))" if kind == "python" else "echo /proc/self/fd/*"
        seen = {int(name.rpartition("/")[2]) for name in (await session.run(listed, wall_s=10)).stdout.split()}
        assert seen and all(number < 12 for number in seen)
        # What is left running has none of its pipes: its end is seen at once.
        leave = (
            "sleep 600 & exit 4"
            if kind == "bash"
            else "import os, subprocess; subprocess.Popen(['sleep', '600']); os._exit(4)"
        )
        ended = await session.run(leave, wall_s=30)
        assert ended.exit_code == 4 and not ended.timed_out and ended.wall_s < 15
        await session.close()
    finally:
        for descriptor in opened:
            os.close(descriptor)


@pytest.mark.slow
async def test_a_session_is_killed_at_its_deadline_and_then_says_that_it_has_ended(sandbox: LocalSandbox) -> None:
    session = await sandbox.open_session("python", limits=LIMITS)
    late = await session.run("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)", wall_s=1.5)
    assert late.timed_out and not late.ok
    await _wait_for_the_end_of(int(late.stdout))
    after = await session.run("1", wall_s=10)
    assert (after.exit_code, after.stderr) == (-9, "the session has ended\n")


async def test_cancelling_a_call_of_a_session_ends_it(sandbox: LocalSandbox) -> None:
    session = await sandbox.open_session("bash", limits=LIMITS)
    pid = int((await session.run("echo $$", wall_s=10)).stdout)
    call = asyncio.create_task(session.run("sleep 600", wall_s=600))
    await asyncio.sleep(0.2)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await sandbox.close()
    await _wait_for_the_end_of(pid)


async def test_closing_the_backend_ends_all_and_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_backend.tempfile, "tempdir", str(tmp_path))
    orphan = tmp_path / f"{local_backend._PREFIX}999999999_x"
    orphan.mkdir()
    backend = LocalBackend()
    await backend.start()
    assert not orphan.exists()
    sandbox = await backend.create()
    session = await sandbox.open_session("bash", limits=LIMITS)
    pid = int((await session.run("echo $$", wall_s=10)).stdout)
    await backend.close()
    assert list(tmp_path.iterdir()) == [] and not _is_running(pid)
    with pytest.raises(SandboxError, match="closed"):
        await run(sandbox, "1")


async def test_a_path_through_a_link_of_the_code_is_refused(sandbox: LocalSandbox, tmp_path: Path) -> None:
    await run(sandbox, f"import os\nos.symlink({str(tmp_path)!r}, 'out')")
    with pytest.raises(ConfigError, match="no folder"):
        await sandbox.run(Command(code="1", files={"out/f": b"x"}), limits=LIMITS)
    assert list(tmp_path.iterdir()) == []


async def test_it_warns_loudly_once_that_it_does_not_isolate(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(local_backend, "_has_warned", False)
    for _ in range(2):
        backend = LocalBackend()
        await backend.start()
        await backend.close()
    (record,) = [r for r in caplog.records if r.levelno == logging.WARNING and r.name == local_backend.__name__]
    assert "DOES NOT ISOLATE" in record.message


@pytest.mark.slow
def test_the_program_of_a_trainer_that_was_killed_ends_by_itself(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    trainer = (
        "import asyncio\n"
        "from verl_agentic.sandbox.interface import Command, Limits\n"
        "from verl_agentic.sandbox.local.local_backend import LocalBackend\n"
        "async def main():\n"
        "    backend = LocalBackend()\n"
        "    await backend.start()\n"
        "    sandbox = await backend.create()\n"
        f"    code = \"import os, time; open({str(marker)!r}, 'w').write(str(os.getpid())); time.sleep(600)\"\n"
        "    await sandbox.run(Command(code=code), limits=Limits(wall_s=5.0))\n"
        "asyncio.run(main())\n"
    )
    process = subprocess.Popen([sys.executable, "-c", trainer], cwd=tmp_path, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (marker.exists() and marker.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.kill()
    process.wait()
    pid = int(marker.read_text())
    while _is_running(pid):
        assert time.monotonic() < deadline, "the code still runs"
        time.sleep(0.05)
