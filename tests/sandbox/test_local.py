"""What the local sandbox bounds: time, memory, output; and what it gives back."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import time

import pytest

from verl_agentic.sandbox.base import CommandResult, Limits
from verl_agentic.sandbox.local import LocalSandbox

LIMITS = Limits(wall_s=20.0)


async def run(code: str, limits: Limits = LIMITS) -> CommandResult:
    return await LocalSandbox().run_python(code, limits=limits)


async def test_code_runs_and_its_output_comes_back() -> None:
    result = await run("import sys\nprint(17 * 3)\nprint('note', file=sys.stderr)")
    assert (result.stdout, result.stderr, result.exit_code, result.ok) == ("51\n", "note\n", 0, True)


async def test_an_error_of_the_code_is_a_result() -> None:
    result = await run("print('before')\n1 / 0")
    assert result.stdout == "before\n" and not result.ok and result.exit_code == 1
    assert result.stderr.rstrip().endswith("ZeroDivisionError: division by zero")


async def test_an_endless_loop_and_its_children_are_killed_at_the_wall_limit() -> None:
    code = "import os, time\nif os.fork() == 0:\n    time.sleep(600)\nprint(os.getpid(), flush=True)\nwhile True: pass"
    started = time.monotonic()
    result = await run(code, Limits(wall_s=1.0))
    assert result.timed_out and not result.ok
    assert time.monotonic() - started < 10
    group = subprocess.run(["ps", "-o", "pid=,stat=", "--sid", result.stdout.strip()], capture_output=True, text=True)
    alive = [line for line in group.stdout.splitlines() if " Z" not in line]
    assert alive == []


async def test_memory_is_bounded() -> None:
    result = await run("x = bytearray(900 * 2**20)\nprint('got it')", Limits(memory_mb=256))
    assert "MemoryError" in result.stderr and "got it" not in result.stdout


async def test_cpu_time_is_bounded() -> None:
    result = await run("while True: pass", Limits(wall_s=30.0, cpu_s=1))
    assert result.exit_code < 0 and not result.timed_out


async def test_endless_output_is_cut_and_costs_no_memory() -> None:
    result = await run("while True: print('x' * 1000)", Limits(wall_s=1.0, output_bytes=5_000))
    assert len(result.stdout) == 5_000 and result.truncated and result.timed_out


async def test_the_code_sees_no_environment_variable_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    result = await run("import os\nprint(sorted(os.environ))")
    assert result.stdout.strip() == "['LC_ALL']"


async def test_cancelling_the_call_kills_the_code() -> None:
    marker = f"/tmp/verl_agentic_test_{os.getpid()}"
    task = asyncio.create_task(run(f"import os, time\nopen({marker!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"))
    while not (os.path.exists(marker) and os.path.getsize(marker)):
        await asyncio.sleep(0.01)
    with open(marker) as file:
        pid = int(file.read())
    os.unlink(marker)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    deadline = time.monotonic() + 5
    while _is_running(pid):
        assert time.monotonic() < deadline, "the code still runs"
        await asyncio.sleep(0.01)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_code_that_is_no_text_or_no_python_is_a_result() -> None:
    assert not (await run("\ud800")).ok
    assert "SyntaxError" in (await run("print(")).stderr


async def test_no_more_processes_run_than_allowed() -> None:
    sandbox = LocalSandbox(max_running=1)
    code = "import time; a = time.monotonic(); time.sleep(0.2); print(a, time.monotonic())"
    results = await asyncio.gather(*(sandbox.run_python(code, limits=LIMITS) for _ in range(3)))
    spans = sorted(tuple(map(float, r.stdout.split())) for r in results)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
