"""Every provider, over a fake of its API: leases, failures, limits, and what is left behind."""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import time
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from clouds import Cloud, provider
from fake_cloud import Fault

from verl_agentic.base.errors import (
    ConfigError,
    MissingDependencyError,
    SandboxBusyError,
    SandboxError,
    SandboxUnavailableError,
    is_infrastructure,
)
from verl_agentic.sandbox.elsewhere import guest_client
from verl_agentic.sandbox.elsewhere.modal_provider import _STATUS
from verl_agentic.sandbox.interface import Command, Limits, Sandbox
from verl_agentic.sandbox.pools.backends import ELSEWHERE, isolation_of, make_backend
from verl_agentic.sandbox.pools.sandbox_pool import PoolConfig, SandboxPool

LIMITS = Limits(wall_s=20.0)
PRINT = Command(code="print(6 * 7)")


@pytest.fixture(params=ELSEWHERE)
def cloud(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cloud]:
    monkeypatch.setattr(guest_client, "_FIRST_PAUSE_S", 0.01)
    with provider(request.param, monkeypatch, tmp_path) as cloud:
        yield cloud


@pytest.fixture
def one_cloud(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cloud]:
    """The provider whose fake needs no library, for what does not depend on the provider."""
    monkeypatch.setattr(guest_client, "_FIRST_PAUSE_S", 0.01)
    with provider("modal", monkeypatch, tmp_path) as cloud:
        yield cloud


@pytest.fixture
async def sandbox(one_cloud: Cloud) -> AsyncIterator[Sandbox]:
    backend = one_cloud.backend()
    await backend.start()
    yield await backend.create()
    await backend.close()


def _lease_s(name: str, order: dict[str, Any]) -> float:
    if name == "daytona":
        assert order["autoDeleteInterval"] == 0 and order["autoStopInterval"] == order["ttlMinutes"]
        return order["ttlMinutes"] * 60
    if name == "kubernetes":
        assert order["spec"]["lifecycle"]["shutdownPolicy"] == "Delete"
        end = datetime.fromisoformat(order["spec"]["lifecycle"]["shutdownTime"].replace("Z", "+00:00"))
        return (end - datetime.now(timezone.utc)).total_seconds()
    return order["timeout"]


@pytest.mark.sample(2)
async def test_a_machine_has_a_lease_and_no_network(cloud: Cloud) -> None:
    backend = cloud.backend(lease_s=600)
    await backend.start()
    await backend.create()
    (order,) = cloud.fake.orders
    assert 500 < _lease_s(cloud.name, order) <= 600
    network = {"e2b": ("allow_internet_access", False), "daytona": ("networkBlockAll", True)}
    network["modal"] = ("block_network", True)
    if cloud.name in network:  # in Kubernetes, the template has a network policy
        key, value = network[cloud.name]
        assert order[key] is value
    await backend.close()
    assert cloud.fake.machines == {}


@pytest.mark.sample(1)
@pytest.mark.parametrize("status", [429, 500])
async def test_requests_that_are_rejected_or_fail_are_repeated(cloud: Cloud, status: int) -> None:
    cloud.fake.faults = [Fault(pattern, status, times=2) for pattern in (cloud.creation, cloud.execution)]
    backend = cloud.backend()
    await backend.start()
    sandbox = await backend.create()
    assert (await sandbox.run(PRINT, limits=LIMITS)).stdout == "42\n"
    assert all(fault.times == 0 for fault in cloud.fake.faults)
    await backend.close()


@pytest.mark.sample(1)
@pytest.mark.parametrize(("status", "kind"), [(429, SandboxBusyError), (500, SandboxUnavailableError)])
async def test_a_provider_that_stays_down_is_a_failure_of_infrastructure(
    cloud: Cloud, status: int, kind: type[SandboxError]
) -> None:
    backend = cloud.backend(max_attempts=2)
    await backend.start()
    sandbox = await backend.create()
    cloud.fake.faults = [Fault(cloud.execution, status, times=99), Fault(cloud.creation, status, times=99)]
    for call in (sandbox.run(PRINT, limits=LIMITS), backend.create()):
        with pytest.raises(kind, match=f"failed at {cloud.name}, got .*") as caught:
            await call
        assert is_infrastructure(caught.value)
    cloud.fake.faults = []
    await backend.close()
    assert cloud.fake.machines == {}


@pytest.mark.sample(1)
@pytest.mark.parametrize("which", ["creation", "execution"])
async def test_the_pause_is_as_long_as_the_provider_asks(cloud: Cloud, which: str) -> None:
    if cloud.name == "modal" or (cloud.name, which) == ("e2b", "execution"):
        pytest.skip("the library does not pass on Retry-After")
    backend = cloud.backend()
    await backend.start()
    cloud.fake.faults = [Fault(getattr(cloud, which), 429, headers={"Retry-After": "1"})]
    started = time.monotonic()
    await backend.create()
    assert time.monotonic() - started >= 1.0
    await backend.close()


@pytest.mark.sample(2)
async def test_a_program_runs_once_though_the_answer_is_lost(cloud: Cloud) -> None:
    backend = cloud.backend()
    await backend.start()
    sandbox = await backend.create()
    pattern = "answer of Sandbox.exec" if cloud.name == "modal" else cloud.execution
    cloud.fake.faults = [Fault(pattern, 500, times=2, is_late=True)]
    count = Command(code="open('runs', 'a').write('x')\nprint(open('runs').read())")
    assert (await sandbox.run(count, limits=LIMITS)).stdout == "x\n"
    assert cloud.fake.faults[0].times == 0
    await backend.close()


@pytest.mark.sample(2)
async def test_a_lost_lease_is_a_failure_of_infrastructure_and_a_pool_goes_on(cloud: Cloud) -> None:
    pool = SandboxPool(cloud.backend(), PoolConfig(size=1, warm=0))
    await pool.start()
    async with pool.lease() as sandbox:
        assert (await sandbox.run(PRINT, limits=LIMITS)).ok
        cloud.fake.end_all_leases()
        with pytest.raises(SandboxError, match=r"its lease has ended|was not found") as caught:
            await sandbox.run(PRINT, limits=LIMITS)
        assert is_infrastructure(caught.value)
    assert (await pool.run(PRINT, limits=LIMITS)).stdout == "42\n"
    await pool.close()
    assert cloud.fake.machines == {}


@pytest.mark.sample(1)
async def test_a_slow_start_is_waited_for_up_to_the_limit(cloud: Cloud) -> None:
    cloud.fake.start_delay_s = 0.5
    backend = cloud.backend()
    await backend.start()
    sandbox = await backend.create()
    assert (await sandbox.run(PRINT, limits=LIMITS)).ok
    await backend.close()
    cloud.fake.start_delay_s = 600.0
    backend = cloud.backend(start_s=0.5)
    await backend.start()
    with pytest.raises(SandboxUnavailableError, match=r"made no machine within 0.5 s|making a machine failed"):
        await backend.create()
    await backend.close()


async def test_a_rejected_key_names_its_variable(cloud: Cloud) -> None:
    backend = cloud.backend()
    await backend.start()
    cloud.fake.faults = [Fault(cloud.creation, 401)]
    with pytest.raises(ConfigError, match=r"check .*(E2B_API_KEY|DAYTONA_API_KEY|MODAL_TOKEN_ID|credentials)"):
        await backend.create()
    await backend.close()


@pytest.mark.sample(1)
@pytest.mark.parametrize("when", ["call", "creation"])
async def test_cancelling_removes_the_machine(cloud: Cloud, when: str) -> None:
    backend = cloud.backend()
    await backend.start()
    if when == "creation":
        cloud.fake.start_delay_s = 0.3
        task = asyncio.ensure_future(backend.create())
    else:
        sandbox = await backend.create()
        task = asyncio.ensure_future(sandbox.run(Command(code="import time; time.sleep(3)"), limits=Limits(wall_s=60)))
    before = len(cloud.fake.requests)
    while len(cloud.fake.requests) == before:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await backend.close()
    assert cloud.fake.orders and cloud.fake.machines == {}


@pytest.mark.parametrize("name", ["daytona", "e2b", "modal"])
async def test_the_key_comes_from_the_environment_only(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("DAYTONA_API_KEY", "E2B_API_KEY", "MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ConfigError, match=r"needs a key, got no .*(KEY|TOKEN_SECRET) in the environment"):
        await make_backend(name).start()
    with pytest.raises(ConfigError, match=f"unknown keys in {name}, got \\['api_key'\\]"):
        make_backend(name, api_key="secret")


@pytest.mark.parametrize("name", ELSEWHERE)
async def test_a_missing_library_names_the_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("DAYTONA_API_KEY", "E2B_API_KEY", "MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"):
        monkeypatch.setenv(variable, "key")
    for module in ("daytona", "e2b", "modal", "kubernetes_asyncio", "k8s_agent_sandbox.async_sandbox_client"):
        monkeypatch.setitem(sys.modules, module, None)
    backend = make_backend(name, **({"warm_pool": "pool"} if name == "kubernetes" else {}))
    with pytest.raises(MissingDependencyError, match=rf"pip install 'verl-agentic\[{name}\]'"):
        await backend.start()


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("kubernetes", {}, "'warm_pool'"),
        ("kubernetes", {"warm_pool": "p", "memory_mb": 1024}, "'memory_mb'"),
        ("kubernetes", {"warm_pool": "p", "isolation": "none"}, "own_kernel"),
        ("daytona", {"cpus": 2}, "memory_gb"),
        ("daytona", {"image": "i", "snapshot": "s"}, "snapshot"),
    ],
)
def test_options_that_a_provider_does_not_have_are_refused(name: str, options: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        make_backend(name, **options)


async def test_isolation_is_checked(one_cloud: Cloud) -> None:
    assert isolation_of(make_backend("modal", at_least="own_kernel")).name == "OWN_KERNEL"
    with pytest.raises(ConfigError, match="daytona isolates by"):
        make_backend("daytona", at_least="own_kernel")


async def test_limits_that_a_machine_cannot_have_are_refused(one_cloud: Cloud, sandbox: Sandbox) -> None:
    for limits, match in (
        (Limits(network=True), "the machines have no network"),
        (Limits(wall_s=7200.0), "wall_s must be at most the lease of 3600 s"),
    ):
        with pytest.raises(ConfigError, match=match):
            await sandbox.run(PRINT, limits=limits)
        with pytest.raises(ConfigError, match=match):
            await sandbox.open_session("bash", limits=limits)
    assert (await sandbox.run(PRINT, limits=LIMITS)).ok


@pytest.mark.slow
async def test_limits_are_results_of_the_code(sandbox: Sandbox) -> None:
    late = await sandbox.run(Command(code="while True: pass"), limits=Limits(wall_s=0.5))
    assert late.timed_out and not late.ok
    assert "MemoryError" in (await sandbox.run(Command(code="x = bytes(1 << 30)"), limits=LIMITS)).stderr
    bomb = "import os\ntry:\n    while True: os.fork() or os.pause()\nexcept OSError as error: print(error)"
    bomb = bomb.replace("os.pause()", "__import__('signal').pause()")
    assert "unavailable" in (await sandbox.run(Command(code=bomb), limits=Limits(wall_s=20.0, processes=10))).stdout
    sockets = "import socket\ntry: socket.socket()\nexcept OSError as error: print(error)"
    assert "Permission denied" in (await sandbox.run(Command(code=sockets), limits=LIMITS)).stdout
    assert (await sandbox.run(PRINT, limits=LIMITS)).stdout == "42\n"


ATTACK = """
import glob, os, signal, shutil, socket
def attempt(name, act):
    try:
        act()
        print(name)
    except OSError:
        pass
base = os.path.dirname(os.path.dirname(os.getcwd()))
for pid in map(int, filter(str.isdigit, os.listdir('/proc'))):
    if pid not in (os.getpid(), os.getppid()):
        attempt(f'signal to {pid}', lambda: os.kill(pid, signal.SIGKILL))
attempt('signal to the box', lambda: os.kill(os.getppid(), signal.SIGKILL))
attempt('memory of the box', lambda: open(f'/proc/{os.getppid()}/mem', 'rb'))
attempt('environment of the box', lambda: open(f'/proc/{os.getppid()}/environ', 'rb').read())
attempt('snapshots', lambda: os.listdir(base + '/kept'))
attempt('socket', lambda: socket.socket(socket.AF_UNIX).connect(base + '/socket'))
attempt('folder', lambda: os.rmdir(os.getcwd()))
attempt('rename', lambda: os.rename(os.getcwd(), base + '/x'))
for folder in ('/tmp', '/var/tmp', '/dev/shm', base):
    attempt(folder, lambda: open(folder + '/left', 'w'))
"""


@pytest.mark.slow
async def test_code_reaches_neither_the_box_nor_the_next_execution(sandbox: Sandbox) -> None:
    for fresh in (False, True):
        result = await sandbox.run(Command(code=ATTACK), limits=LIMITS, fresh=fresh)
        assert (result.stdout, result.stderr) == ("", "")
    await sandbox.run(Command(code="open('left', 'w')"), limits=LIMITS, fresh=True)
    listing = await sandbox.run(Command(code="import os; print(os.listdir('.'))"), limits=LIMITS, fresh=True)
    assert listing.stdout == "[]\n"


SPY = """
import base64, os, threading
seen = set()
def look():
    while True:
        for pid in filter(str.isdigit, os.listdir('/proc')):
            try:
                seen.update(open(f'/proc/{pid}/cmdline', 'rb').read().split(bytes(1)))
            except OSError:
                pass
threading.Thread(target=look, daemon=True).start()
"""
FOUND = """
def decoded(text):
    try:
        return base64.b64decode(text)
    except ValueError:
        return b''
calls = [text for text in seen if b'shake_256' in text]
print(bool(calls), any(b'hid' + b'den' in text + decoded(text) for text in list(seen)))
"""


@pytest.mark.sample(2)
async def test_a_session_cannot_read_what_a_grader_is_given(cloud: Cloud) -> None:
    backend = cloud.backend()
    await backend.start()
    sandbox = await backend.create()
    session = await sandbox.open_session("python", limits=LIMITS)
    assert (await session.run(SPY, wall_s=20.0)).ok
    for size in (10, 40_000):  # as an argument, and as a file
        grade = Command(code="print(open('tests').read()[:6])", files={"tests": b"hidden" * size})
        for _ in range(3):
            assert (await sandbox.run(grade, limits=LIMITS, fresh=True)).stdout == "hidden\n"
    assert (await session.run(FOUND, wall_s=20.0)).stdout == "True False\n"
    await backend.close()


async def test_a_machine_without_root_is_refused_and_removed(one_cloud: Cloud) -> None:
    one_cloud.fake.prefix = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"]
    backend = one_cloud.backend()
    await backend.start()
    with pytest.raises(SandboxUnavailableError, match="1000"):
        await backend.create()
    assert one_cloud.fake.machines == {}
    await backend.close()


async def test_an_image_without_python_is_named(one_cloud: Cloud) -> None:
    backend = one_cloud.backend(python="no-such-python", max_attempts=1)
    await backend.start()
    with pytest.raises(SandboxError, match="no-such-python"):
        await backend.create()
    await backend.close()


async def test_a_removal_that_fails_is_left_to_the_lease(one_cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    backend = one_cloud.backend(max_attempts=2)
    await backend.start()
    await backend.create()
    one_cloud.fake.faults = [Fault("Sandbox.terminate", 500, times=2)]
    await backend.close()
    assert len(one_cloud.fake.machines) == 1
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "left until its lease ends" in warning


async def test_a_sandbox_near_the_end_of_its_lease_is_not_used_again(one_cloud: Cloud) -> None:
    backend = one_cloud.backend(lease_s=600, deadline_s=599.9)
    await backend.start()
    sandbox: Any = await backend.create()
    assert not sandbox.is_usable
    await backend.close()


@pytest.mark.slow
def test_the_fake_of_modal_has_the_signatures_of_its_library() -> None:
    modal = pytest.importorskip("modal")
    create, lookup = inspect.signature(modal.Sandbox.create), inspect.signature(modal.App.lookup)
    assert {"app", "image", "timeout", "cpu", "memory", "block_network"} <= set(create.parameters)
    assert "create_if_missing" in lookup.parameters and callable(modal.App.lookup.aio)
    assert "timeout" in inspect.signature(modal.Sandbox.exec).parameters and callable(modal.Sandbox.terminate)
    assert callable(modal.Image.from_registry)
    exception, streams = pytest.importorskip("modal.exception"), pytest.importorskip("modal.io_streams")
    assert all(hasattr(exception, name) for name in _STATUS)
    assert hasattr(streams.StreamReader, "read")
    assert all(hasattr(streams.StreamWriter, name) for name in ("write", "write_eof", "drain"))
