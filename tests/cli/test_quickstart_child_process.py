"""A child process of the quickstart: its log, its failure, and that nothing of it outlives the call."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from verl_agentic.base.errors import RAY_IS_SLOW
from verl_agentic.cpu.quickstart import child_process
from verl_agentic.cpu.quickstart.child_process import (
    CPU_ENVIRONMENT,
    ChildFailedError,
    MemoryMeter,
    run_child,
    termination_as_interrupt,
)

# A child that starts a grandchild, writes its pid into a file, and then does what `then` says.
PARENT = """
import pathlib, signal, subprocess, sys, time
folder = pathlib.Path(sys.argv[1])
grandchild = subprocess.Popen(
    [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(60)"],
    start_new_session=sys.argv[2] == "own session",
)
(folder / "partial").write_text(str(grandchild.pid))
(folder / "partial").rename(folder / "grandchild")
"""
WAIT = "time.sleep(60)"
EXIT = "sys.exit(3)"
DEAF = """
signal.signal(signal.SIGINT, lambda *_: (folder / "heard").touch())
(folder / "deaf").touch()
while True:
    time.sleep(1)
"""


@pytest.fixture
def meter() -> Iterator[MemoryMeter]:
    meter = MemoryMeter()
    yield meter
    meter.stop()


@pytest.fixture(autouse=True)
def _ctrl_c_works() -> Iterator[None]:
    # Whoever starts the tests in the background makes them, and all their children, deaf to it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "_POLL_S", 0.02)
    monkeypatch.setattr(child_process, "_SURVIVORS_S", 0.1)


def command(folder: Path, then: str, *, session: str = "same session") -> list[str]:
    return [sys.executable, "-c", PARENT + then, str(folder), session]


def is_gone(pid: int) -> bool:
    """Returns whether a process has ended, giving it a moment to be reaped by init."""
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def children_of_ours() -> set[psutil.Process]:
    return set(psutil.Process().children())


def interrupt_when(path: Path) -> None:
    if path.is_file():
        raise KeyboardInterrupt


def test_output_and_environment_go_where_they_belong(tmp_path: Path, meter: MemoryMeter) -> None:
    polls: list[int] = []
    code = "import os, sys, time; print(os.environ['WHO']); print('oops', file=sys.stderr); time.sleep(0.3)"
    run_child(
        [sys.executable, "-c", code],
        log=tmp_path / "logs" / "a.log",
        environment={"WHO": "me"},
        meter=meter,
        on_poll=lambda: polls.append(1),
    )
    assert sorted((tmp_path / "logs" / "a.log").read_text().split()) == ["me", "oops"]
    assert len(polls) > 2


def test_a_failure_shows_the_end_of_the_log(tmp_path: Path, meter: MemoryMeter) -> None:
    code = "import sys\nfor i in range(100): print('line', i)\nsys.stdout.flush(); sys.exit('the cause')"
    with pytest.raises(ChildFailedError) as caught:
        run_child([sys.executable, "-c", code], log=tmp_path / "a.log", environment={}, meter=meter)
    text = str(caught.value)
    assert "ended with exit code 1" in text and str(tmp_path / "a.log") in text
    assert text.endswith("line 99\nthe cause") and "line 76" in text and "line 75" not in text


@pytest.mark.parametrize(("slow_starts", "is_run"), [(1, True), (2, False)])
def test_a_slow_start_of_ray_is_tried_once_more(
    tmp_path: Path, meter: MemoryMeter, slow_starts: int, is_run: bool
) -> None:
    tries = tmp_path / "tries"
    code = f"""
import sys
with open({str(tries)!r}, "a+") as file:
    file.write("x")
if {slow_starts!s} >= len(open({str(tries)!r}).read()):
    sys.exit("Exception: {RAY_IS_SLOW}. This could happen because ...")
"""
    with contextlib.nullcontext() if is_run else pytest.raises(ChildFailedError, match=RAY_IS_SLOW):
        run_child([sys.executable, "-c", code], log=tmp_path / "a.log", environment={}, meter=meter)
    assert tries.read_text() == "xx"


@pytest.mark.parametrize("session", ["same session", "own session"])
def test_ctrl_c_ends_the_child_and_its_children(tmp_path: Path, meter: MemoryMeter, session: str) -> None:
    before = children_of_ours()
    seen: set[psutil.Process] = set()

    def on_poll() -> None:
        seen.update(children_of_ours() - before)
        interrupt_when(tmp_path / "grandchild")

    with pytest.raises(KeyboardInterrupt):
        run_child(
            command(tmp_path, WAIT, session=session),
            log=tmp_path / "a.log",
            environment={},
            meter=meter,
            on_poll=on_poll,
        )
    assert seen and all(is_gone(p.pid) for p in seen)
    assert is_gone(int((tmp_path / "grandchild").read_text()))
    assert "KeyboardInterrupt" in (tmp_path / "a.log").read_text(), "the child was to end in order"


def test_a_grandchild_whose_parent_ended_before_anyone_looked_is_ended_too(tmp_path: Path, meter: MemoryMeter) -> None:
    with pytest.raises(ChildFailedError, match="exit code 3"):
        run_child(command(tmp_path, EXIT), log=tmp_path / "a.log", environment={}, meter=meter)
    assert is_gone(int((tmp_path / "grandchild").read_text()))


def test_processes_of_ours_that_the_child_did_not_start_live_on(tmp_path: Path, meter: MemoryMeter) -> None:
    ours: list[psutil.Popen] = []

    def on_poll() -> None:
        if not ours:
            ours.append(psutil.Popen(["sleep", "60"]))
            meter.measure()
        interrupt_when(tmp_path / "grandchild")

    with pytest.raises(KeyboardInterrupt):
        run_child(command(tmp_path, WAIT), log=tmp_path / "a.log", environment={}, meter=meter, on_poll=on_poll)
    with ours[0] as process:
        assert process.poll() is None
        process.kill()


def test_a_second_ctrl_c_ends_a_child_that_ignores_the_first_at_once(tmp_path: Path, meter: MemoryMeter) -> None:
    before = children_of_ours()
    children: set[psutil.Process] = set()
    main = threading.main_thread().ident
    assert main is not None

    def interrupt_again() -> None:
        while not (tmp_path / "heard").is_file():
            time.sleep(0.02)
        signal.pthread_kill(main, signal.SIGINT)

    again = threading.Thread(target=interrupt_again, daemon=True)

    def on_poll() -> None:
        if (tmp_path / "deaf").is_file():
            children.update(children_of_ours() - before)
            again.start()
            raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_child(command(tmp_path, DEAF), log=tmp_path / "a.log", environment={}, meter=meter, on_poll=on_poll)
    again.join()
    assert time.monotonic() - started < 10.0
    assert children and all(is_gone(p.pid) for p in children)
    assert is_gone(int((tmp_path / "grandchild").read_text()))


def run_interrupted(folder: Path, meter: MemoryMeter, then: str, *, when: str) -> None:
    """Runs a child until it has written a file; then Ctrl-C comes."""
    with pytest.raises(KeyboardInterrupt):
        run_child(
            command(folder, then),
            log=folder / "a.log",
            environment={},
            meter=meter,
            on_poll=lambda: interrupt_when(folder / when),
        )


def test_a_second_ctrl_c_while_processes_are_looked_for_ends_the_child_too(
    tmp_path: Path, meter: MemoryMeter, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = children_of_ours()
    children: set[psutil.Process] = set()

    def interrupted() -> None:
        children.update(children_of_ours() - before)
        raise KeyboardInterrupt

    monkeypatch.setattr(meter, "measure", interrupted)
    run_interrupted(tmp_path, meter, WAIT, when="grandchild")
    assert children and all(is_gone(p.pid) for p in children)
    assert is_gone(int((tmp_path / "grandchild").read_text()))


def test_a_child_that_ignores_ctrl_c_is_killed_after_the_grace(
    tmp_path: Path, meter: MemoryMeter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "_GRACE_S", 0.2)
    run_interrupted(tmp_path, meter, DEAF, when="deaf")
    assert is_gone(int((tmp_path / "grandchild").read_text()))


@pytest.mark.slow
def test_the_meter_counts_the_memory_of_descendants_and_forgets_the_dead(meter: MemoryMeter) -> None:
    meter.measure()
    before = meter.peak_bytes
    code = "data = bytearray(300 * 2**20); print('ready', flush=True); input()"
    with psutil.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1) as process:
        process.stdout.readline()
        meter.measure()
        assert process.pid in meter.seen
        process.communicate(b"\n")
    assert meter.peak_bytes - before > 250 * 2**20
    meter.measure()
    assert process.pid not in meter.seen


@pytest.mark.parametrize(("variables", "joins"), [({}, True), (CPU_ENVIRONMENT, False)])
def test_a_run_does_not_join_a_cluster_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], joins: bool
) -> None:
    services: Any = pytest.importorskip("ray._private.services")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "ray_current_cluster").write_text("127.0.0.1:6379")
    assert (services.canonicalize_bootstrap_address(None, str(tmp_path)) is not None) == joins


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio handles SIGINT from Python 3.11 on")
def test_sigterm_cancels_what_an_event_loop_runs_as_ctrl_c_does() -> None:
    seen = []

    async def work() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(60)
        except BaseException as error:
            seen.append(type(error))
            raise

    with pytest.raises(KeyboardInterrupt), termination_as_interrupt():
        asyncio.run(work())
    assert seen == [asyncio.CancelledError]


def test_sigterm_interrupts_also_where_ctrl_c_is_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), termination_as_interrupt():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGINT, before)
