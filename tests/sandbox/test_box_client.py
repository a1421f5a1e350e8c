"""Results and errors at the trainer's end of a box that dies in the middle of a call."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys

import pytest

from verl_agentic.base.errors import ConfigError, DataError, SandboxError
from verl_agentic.sandbox.boxes import box_client
from verl_agentic.sandbox.boxes.box_client import BoxClient, BoxProcess
from verl_agentic.sandbox.boxes.cgroups import ControlGroup
from verl_agentic.sandbox.inside import frames
from verl_agentic.sandbox.interface import Command, Limits, SpentSandboxError


class FakeLife:
    """Notes that it was ended."""

    def __init__(self) -> None:
        self.is_killed = False

    def kill(self) -> None:
        self.is_killed = True

    async def ended(self) -> None:
        return None


class FakeGroup(ControlGroup):
    """A control group of which the test says how often the kernel killed, and whether it can be limited."""

    def __init__(self) -> None:
        super().__init__("fake", is_v2=False)
        self.kills = 0
        self.is_too_full = False

    def limit(self, *, memory_bytes: int, processes: int) -> None:
        if self.is_too_full:
            raise OSError(16, "Device or resource busy")

    def oom_kills(self) -> int:
        return self.kills


async def _client(group: FakeGroup) -> tuple[BoxClient, socket.socket, FakeLife]:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    life = FakeLife()
    return BoxClient(reader, writer, life=life, group=group), theirs, life


async def test_a_box_that_died_of_its_program_s_memory_gives_results_from_then_on() -> None:
    group = FakeGroup()
    client, box, life = await _client(group)
    task = asyncio.create_task(client.run(Command(code="x"), limits=Limits()))
    await asyncio.sleep(0.05)
    group.kills = 1
    box.close()
    first, second = await task, await client.run(Command(code="x"), limits=Limits())
    assert first.oom and second.oom and not first.ok and first.exit_code == -9 and life.is_killed
    assert not client.is_usable
    with pytest.raises(SandboxError, match="has ended"):
        await client.snapshot()
    await client.close()


async def test_a_box_that_dies_of_memory_between_calls_is_the_code_s_doing_whatever_is_asked_next() -> None:
    group = FakeGroup()
    client, box, _ = await _client(group)
    group.kills = 1
    box.close()
    with pytest.raises(SpentSandboxError) as spent:
        await client.snapshot()
    assert isinstance(spent.value, DataError)
    assert (await client.run(Command(code="x"), limits=Limits())).oom
    with pytest.raises(DataError):
        await client.open_session("bash", limits=Limits())
    await client.close()


async def test_a_box_that_died_of_anything_else_is_an_error() -> None:
    client, box, life = await _client(FakeGroup())
    task = asyncio.create_task(client.run(Command(code="x"), limits=Limits()))
    await asyncio.sleep(0.05)
    box.close()
    with pytest.raises(SandboxError, match="died"):
        await task
    with pytest.raises(SandboxError, match="has ended"):
        await client.run(Command(code="x"), limits=Limits())
    assert life.is_killed
    await client.close()


async def test_limits_below_what_is_held_already_are_a_result() -> None:
    group = FakeGroup()
    client, box, life = await _client(group)
    group.is_too_full = True
    assert (await client.run(Command(code="x"), limits=Limits())).oom
    assert client.is_usable and not life.is_killed
    box.close()
    await client.close()


async def test_an_error_of_the_box_ends_it() -> None:
    client, box, life = await _client(FakeGroup())
    box.sendall(frames.answer({"error": "no more descriptors"}))
    with pytest.raises(SandboxError, match="no more descriptors"):
        await client.run(Command(code="x"), limits=Limits())
    assert life.is_killed and not client.is_usable
    box.close()
    await client.close()


async def test_a_box_that_gives_no_answer_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box_client, "_GRACE_S", 0.1)
    client, box, life = await _client(FakeGroup())
    with pytest.raises(SandboxError, match=r"no answer within 0\.2 s"):
        await client.run(Command(code="x"), limits=Limits(wall_s=0.1))
    assert life.is_killed and not client.is_usable
    with pytest.raises(SandboxError, match="has ended"):
        await client.run(Command(code="x"), limits=Limits())
    box.close()
    await client.close()


async def test_a_path_that_cannot_be_used_is_the_caller_s_mistake() -> None:
    client, box, _ = await _client(FakeGroup())
    box.sendall(frames.answer({"bad_path": "snapshots 1 to 0 are there, got 3"}))
    with pytest.raises(ConfigError, match="got 3"):
        await client.reset(3)
    assert client.is_usable
    box.close()
    await client.close()


async def test_all_who_wait_for_the_end_of_a_process_are_woken() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        life = BoxProcess(process.pid)
        waiting = [asyncio.create_task(life.ended()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        life.kill()
        await asyncio.wait_for(asyncio.gather(*waiting[1:]), 30)
    await life.ended()
    assert waiting[0].cancelled()
