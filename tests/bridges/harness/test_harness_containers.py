"""Agents in containers: on a real engine, and with a fake one that fails. Without an engine, its tests are skipped."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import socket
import struct
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from verl_agentic.base.errors import ConfigError, SandboxError, SandboxUnavailableError
from verl_agentic.base.types import StopReason
from verl_agentic.bridges.harness import container_agent, gateway

PROGRAM = """
import json, os, sys, urllib.request
task = json.load(sys.stdin)
def ask(text):
    body = json.dumps({"messages": [{"role": "user", "content": text}]}).encode()
    url, kind = os.environ["OPENAI_BASE_URL"] + "/chat/completions", {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, body, kind)) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]
said = ask(task["prompt"][-1]["content"])
"""


def container(image: str, ending: str, **options: Any) -> dict[str, Any]:
    return {"image": image, "command": ["python3", "-S", "-c", PROGRAM + ending], **options}


def answer(messages: Any) -> str:
    return "42"


@pytest.fixture(scope="module")
def network(api: Any) -> Iterator[str]:
    """A network in which containers reach this machine and nothing else."""
    name = f"verl-agentic-test-{secrets.token_hex(4)}"
    try:
        api.create_network(name, internal=True)
    except Exception as cause:
        pytest.skip(f"the engine cannot make a network: {cause}")
    yield name
    api.remove_network(name)


def programs(api: Any) -> list[Any]:
    return api.containers(all=True, filters={"label": "verl-agentic.program"})


async def test_a_container_is_an_agent_that_reaches_the_gateway_and_nothing_else(
    stage: Any, api: Any, network: str, docker_image: str
) -> None:
    ending = """
import socket
for place in (("192.0.2.1", 80), ("8.8.8.8", 53)):
    try:
        socket.create_connection(place, 1)
    except OSError:
        continue
    sys.exit("a way out")
assert os.environ["COLOUR"] == "red"
status = open("/proc/self/status").read()
assert "CapEff:\\t0000000000000000" in status and "NoNewPrivs:\\t1" in status, status
print(said, end="")
"""
    agent = container(docker_image, ending, network=network, variables={"COLOUR": "red"})
    episode, policy = await stage.play(agent, answer)
    policy.assert_trained(episode)
    assert (episode.reward.outcome, episode.stop_reason) == (1.0, StopReason.ANSWERED), (
        episode.error or episode.reward.details
    )
    assert programs(api) == [] and not gateway.gateway_servers.list_lent()


@pytest.mark.parametrize(
    ("ending", "options", "message"),
    [
        ("sys.exit('cannot read that')", {}, "exit code 1: cannot read that"),
        ("os.kill(os.getpid(), 9)", {}, "exit code 137"),
        ("x = bytearray(500 * 2**20)", {"memory_mb": 64}, "more than its memory_mb=64"),
        ("import time; time.sleep(60)", {}, "neither asked nor ended"),
    ],
)
async def test_a_container_that_fails_after_a_turn_scores_0_and_is_removed(
    stage: Any, api: Any, network: str, docker_image: str, ending: str, options: Any, message: str
) -> None:
    agent = container(docker_image, ending, network=network, **options)
    episode, policy = await stage.play(agent, answer, agent_timeout_s=20.0 if "sleep" not in ending else 2.0)
    policy.assert_trained(episode)
    assert (episode.stop_reason, episode.reward.outcome) == (StopReason.AGENT_FAILED, 0.0), episode.error
    assert message in episode.reward.details["agent_error"]
    assert programs(api) == []


async def test_exit_code_75_and_an_image_that_does_not_exist_void_the_episode(
    stage: Any, api: Any, network: str, docker_image: str
) -> None:
    episode, _ = await stage.play(container(docker_image, "sys.exit(75)", network=network), answer)
    assert episode.is_void and "exit code 75" in str(episode.error)
    episode, _ = await stage.play(container("localhost:1/none:none", "", network=network), answer)
    assert episode.is_void and "has no image" in str(episode.error)
    episode, _ = await stage.play({**container(docker_image, "", network=network), "command": ["/none"]}, answer)
    assert episode.is_void and "exec /none failed" in str(episode.error)
    assert programs(api) == []


async def test_a_cancelled_episode_leaves_no_container(stage: Any, api: Any, network: str, docker_image: str) -> None:
    asked = asyncio.Event()

    async def never(messages: Any) -> str:
        asked.set()
        await asyncio.sleep(60)
        return ""

    playing = asyncio.ensure_future(stage.play(container(docker_image, "", network=network), never))
    await asyncio.wait_for(asked.wait(), 60)
    assert len(programs(api)) == 1
    playing.cancel()
    await asyncio.gather(playing, return_exceptions=True)
    assert programs(api) == []


async def test_a_network_without_an_address_of_this_machine_is_a_fault_of_the_configuration(
    stage: Any, api: Any, docker_image: str
) -> None:
    for name in ("none", "no-such-network"):
        with pytest.raises(ConfigError, match="address"):
            await stage.play(container(docker_image, "", network=name), answer)


class FakeEngine:
    """An engine with one container, whose program says `42` after a request, and with failures at chosen calls."""

    fails: dict[str, list[Exception]]
    created: list[str]
    removed: list[str]
    end_state: dict[str, Any]
    slow_s = 0.0

    def __init__(self, url: str | None) -> None:
        self._fail("connect")

    def _fail(self, call: str) -> None:
        left = self.fails.get(call)
        if left:
            raise left.pop()

    def check(self, runtime: str | None) -> None:
        self._fail("check")

    def provide_image(self, image: str) -> None:
        self._fail("provide_image")

    def reap(self) -> list[str]:
        return []

    def host_address(self, network: str) -> str:
        return "127.0.0.1"

    def create_program(self, shape: Any) -> tuple[str, Any]:
        time.sleep(self.slow_s)
        self.created.append(shape.group)
        self._fail("create_program")  # the engine made it, and its answer was lost
        self._url = shape.environment["OPENAI_BASE_URL"]
        ours, self._stdio = socket.socketpair()
        return "c" * 64, ours

    def start(self, container: str) -> None:
        self._fail("start")
        threading.Thread(target=self._program, daemon=True).start()

    def _program(self) -> None:
        with contextlib.suppress(OSError):  # the episode may end before it
            while self._stdio.recv(65_536):
                pass
            body = json.dumps({"messages": [{"role": "user", "content": "go"}]}).encode()
            kind = {"Content-Type": "application/json"}
            request = urllib.request.Request(f"{self._url}/chat/completions", body, kind)
            with urllib.request.urlopen(request) as answer:
                said = json.load(answer)["choices"][0]["message"]["content"].encode()
            self._stdio.sendall(struct.pack(">BxxxL", 1, len(said)) + said)
        self._stdio.close()

    def state(self, container: str) -> dict[str, Any]:
        return self.end_state

    def remove_group(self, group: str) -> None:
        self._fail("remove_group")
        self.removed.append(group)

    def close(self) -> None:
        if hasattr(self, "_stdio"):
            self._stdio.close()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> type[FakeEngine]:
    attributes = {"fails": {}, "created": [], "removed": [], "end_state": {"Running": False, "ExitCode": 0}}
    Fake = type("Fake", (FakeEngine,), attributes)
    monkeypatch.setattr(container_agent, "Engine", Fake)
    monkeypatch.setattr(container_agent, "_BETWEEN_S", 0.0)
    return Fake


async def test_a_result_survives_a_removal_that_fails_at_first(stage: Any, engine: Any) -> None:
    engine.fails = {"remove_group": [SandboxError("busy")]}
    episode, policy = await stage.play({"image": "i"}, answer)
    policy.assert_trained(episode)
    assert episode.reward.outcome == 1.0, episode.error
    assert engine.removed == engine.created and len(engine.created) == 1


@pytest.mark.parametrize("call", ["check", "provide_image", "create_program", "start"])
async def test_a_failed_engine_voids_the_episode_and_its_container_is_removed(
    stage: Any, engine: Any, call: str
) -> None:
    engine.fails = {call: [SandboxUnavailableError("no space left")]}
    episode, _ = await stage.play({"image": "i"}, answer)
    assert episode.is_void and "no space left" in str(episode.error)
    assert len(engine.removed) == 1 and set(engine.created) <= set(engine.removed)


async def test_a_container_that_the_engine_loses_voids_the_episode(stage: Any, engine: Any) -> None:
    engine.end_state = {}
    episode, _ = await stage.play({"image": "i"}, answer)
    assert episode.is_void and "lost the agent's container" in str(episode.error)


async def test_a_cancellation_while_the_engine_makes_the_container_removes_it(stage: Any, engine: Any) -> None:
    engine.slow_s = 0.3
    playing = asyncio.ensure_future(stage.play({"image": "i"}, answer))
    await asyncio.sleep(0.1)
    playing.cancel()
    await asyncio.gather(playing, return_exceptions=True)
    assert engine.removed == engine.created and len(engine.created) == 1


def test_wrong_options_of_a_container_are_refused(row: Any) -> None:
    from verl_agentic.bridges.harness import make_env

    with pytest.raises(ConfigError, match="memory_mb"):
        make_env(row, agent={"image": "i", "memory_mb": 1})
    with pytest.raises(ConfigError, match="imag"):
        make_env(row, agent={"imag": "i"})
