"""Measures what the gateway costs, and checks tokens and leftovers.

`added_ms`: median time that the gateway adds to a request, in milliseconds: from the agent's request until it has read
the answer, less the same time of an episode without a gateway. 256 agents run at once in one event loop, and a turn of
the policy takes 2 s. `added_alone_ms`: the same with one agent and a policy that costs nothing.
`cpu_ms_per_request`: processor time that gateway and agent add to a request.

`equal_tokens`: share of episodes whose rows (ids, masks, log-probs) equal those of the same episode without a gateway.

`leftovers`: tasks, processes, folders, gateways, open ports and descriptors after episodes of agents that hang, crash,
retry, send garbage, exceed budgets or leave processes behind. `wrong_stop_reasons`: those that ended in another way.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import logging
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from _leftovers import groups, leftovers
from _report import Target, progress, report

from verl_agentic.base.env import EnvRow
from verl_agentic.base.types import Message, Observation, Reward, StopReason
from verl_agentic.bridges.harness import make_env
from verl_agentic.bridges.harness.gateway import gateway_servers
from verl_agentic.cpu.testing import tiny_codecs
from verl_agentic.episode.attempt.attempt import EpisodeSetup
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.policies.policy import Completion
from verl_agentic.episode.run_episode import run_episode

_AGENTS, _TURNS, _TURN_S = 256, 4, 2.0
_LIMITS = EpisodeLimits(
    max_response_tokens=8_000, max_context_tokens=9_000, max_turns=8, max_retries=0, turn_timeout_s=60
)
_ROW = EnvRow(prompt=(Message("user", "What is the sum of the numbers in the file? " * 4),), ground_truth="42")
_SAID = "I should look at the next part of the file and add its numbers up. " * 3
_OBSERVED = "line one of the output: 1, 2, 3 and so on\n" * 8


def main() -> int:
    """Runs the measurements and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer agents")
    options = parser.parse_args()
    logging.disable(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="gateway_") as folder:
        tokenizer, codecs = tiny_codecs(Path(folder))
    tokenizer.model_max_length = 10**9
    stage = Stage(tokenizer, codecs["chat"])
    agents = 32 if options.quick else _AGENTS
    alone = _compare(stage, agents=1, turn_s=0.0, repeats=8 if options.quick else 32)
    progress(f"alone: {alone}")
    together = _compare(stage, agents=agents, turn_s=_TURN_S, repeats=1)
    progress(f"together: {together}")
    wrong, left, count = asyncio.run(_faults(stage, each=2 if options.quick else 16))
    for problem in [*wrong[:20], *left[:20]]:
        progress(problem)
    return report(
        "gateway",
        ratios={"equal_tokens": min(alone.equal, together.equal)},
        figures={
            "added_ms": together.added_ms,
            "added_alone_ms": alone.added_ms,
            "cpu_ms_per_request": together.cpu_ms,
            "agents": agents,
            "requests": together.requests,
            "faulty_agents": count,
            "wrong_stop_reasons": len(wrong),
            "leftovers": len(left),
        },
        targets={
            "added_ms": Target(bound=5, at_least=False),
            "equal_tokens": Target(bound=1.0),
            "wrong_stop_reasons": Target(bound=0, at_least=False),
            "leftovers": Target(bound=0, at_least=False),
        },
    )


@dataclass
class Stage:
    """Tokenizer and codec."""

    tokenizer: Any
    codec: Any

    async def play(self, make: Callable[[EnvRow], Any], *, name: str, turn_s: float = 0.0, wait_s: float = 0.0) -> Any:
        """Plays an episode after a wait."""
        await asyncio.sleep(wait_s)
        policy = Policy(self.tokenizer, turn_s=turn_s, name=name)
        setup = EpisodeSetup(policy=policy, codec=self.codec, tokenizer=self.tokenizer, limits=_LIMITS)
        return await run_episode(_ROW, make_env=make, setup=setup, request_id=name)


@dataclass
class Policy:
    """Says a text after a while."""

    tokenizer: Any
    turn_s: float
    name: str
    turns: int = 0

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, **_: Any) -> Completion:
        await asyncio.sleep(self.turn_s)
        self.turns += 1
        ids = [*self.tokenizer.encode(f"{self.name} {self.turns}: {_SAID}"), self.tokenizer.eos_token_id]
        return Completion(token_ids=ids, log_probs=[-float(self.turns)] * len(ids), finish_reason="stop")


@dataclass
class Direct:
    """The environment without a gateway; keeps the times from its observations to the next turns."""

    row: EnvRow
    times: list[float]
    tools: Sequence[Any] = ()
    since: float = 0.0
    turns: int = 0

    async def start(self) -> tuple[Message, ...]:
        self.since = time.perf_counter()
        return self.row.prompt

    async def step(self, action: Any) -> Observation:
        self.times.append(time.perf_counter() - self.since)
        self.turns += 1
        self.since = time.perf_counter()
        if self.turns == _TURNS:
            return Observation(stop=StopReason.ANSWERED)
        return Observation((Message("user", _OBSERVED),))

    async def score(self, transcript: Any) -> Reward:
        return Reward(1.0)

    async def close(self) -> None:
        pass


class Client:
    """A connection that costs little: one HTTP request after the other."""

    def __init__(self, endpoint: Any) -> None:
        place = urlsplit(endpoint.base_url)
        self._place, self._path = (str(place.hostname), int(place.port or 0)), place.path
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, body: Any, *, path: str = "/chat/completions", headers: str = "") -> tuple[int, Any]:
        """Returns the status and the answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._place, limit=1 << 24)
        reader, writer = self._streams
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = "host: localhost\r\ncontent-type: application/json\r\n"
        head = f"POST {self._path}{path} HTTP/1.1\r\n{kind}{headers}content-length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)
        answered = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(answered.split("content-length:")[1].split("\r\n")[0])
        return int(answered.split()[1]), json.loads(await reader.readexactly(length) or b"null")

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


@contextlib.asynccontextmanager
async def connected(endpoint: Any) -> AsyncIterator[Client]:
    """Provides a client."""
    client = Client(endpoint)
    try:
        yield client
    finally:
        client.close()


def _talking(times: list[float], *, turns: int = _TURNS) -> Callable[[Any, Any], Awaitable[str]]:
    async def agent(row: EnvRow, endpoint: Any) -> str:
        messages: list[Any] = [message.to_dict() for message in row.prompt]
        async with connected(endpoint) as client:
            await client.ask({}, path="/nothing")  # connects
            for turn in range(turns):
                began = time.perf_counter()
                status, body = await client.ask({"model": "m", "messages": messages})
                times.append(time.perf_counter() - began)
                if status != 200:
                    raise RuntimeError(body)
                if turn < turns - 1:
                    messages += [body["choices"][0]["message"], {"role": "user", "content": _OBSERVED}]
        return "42"

    return agent


def _is_right(row: EnvRow, result: Any, transcript: Any) -> float:
    return float(result == row.ground_truth)


@dataclass(frozen=True)
class Compared:
    """A comparison with episodes without a gateway."""

    added_ms: float
    cpu_ms: float
    equal: float
    requests: int


def _compare(stage: Stage, *, agents: int, turn_s: float, repeats: int) -> Compared:
    async def run(make: Callable[[EnvRow], Any]) -> list[Any]:
        episodes = []
        for repeat in range(repeats):
            waits = ((f"agent {repeat} {number}", turn_s * number / agents) for number in range(agents))
            plays = (stage.play(make, name=name, turn_s=turn_s, wait_s=wait_s) for name, wait_s in waits)
            episodes += await asyncio.gather(*plays)
        return episodes

    direct_s: list[float] = []
    through_s: list[float] = []
    agent = _talking(through_s)
    began = time.process_time()
    direct = asyncio.run(run(lambda row: Direct(row, direct_s)))
    between = time.process_time()
    through = asyncio.run(run(lambda row: make_env(row, agent=agent, score=_is_right)))
    added_s = (time.process_time() - between) - (between - began)
    pairs = zip(direct, through, strict=True)
    equal = [one.trajectories == other.trajectories and not other.is_void for one, other in pairs]
    added_ms = 1e3 * (statistics.median(through_s) - statistics.median(direct_s))
    count = len(through_s)
    return Compared(round(added_ms, 3), round(1e3 * added_s / count, 3), sum(equal) / len(equal), count)


# Faults.


@dataclass(frozen=True)
class Fault:
    """A kind of agent, and how its episode must end."""

    agent: Any
    stop: StopReason
    outcome: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)


async def _hangs_at_once(row: EnvRow, endpoint: Any) -> str:
    await asyncio.sleep(3_600)
    return "42"


async def _hangs_later(row: EnvRow, endpoint: Any) -> str:
    async with connected(endpoint) as client:
        await client.ask({"messages": [{"role": "user", "content": "go"}]})
        await asyncio.sleep(3_600)
    return "42"


async def _crashes_at_once(row: EnvRow, endpoint: Any) -> str:
    raise ValueError("crash")


async def _crashes_later(row: EnvRow, endpoint: Any) -> str:
    async with connected(endpoint) as client:
        _, body = await client.ask({"messages": [{"role": "user", "content": "go"}]})
        return str(json.loads(body["choices"][0]["message"]["content"]))


async def _retries(row: EnvRow, endpoint: Any) -> str:
    """Gives up its connection before each answer, and sends the request again."""
    body: Any = {"messages": [{"role": "user", "content": "go"}]}
    for _ in range(3):
        async with connected(endpoint) as client:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(client.ask(body), 0.02)
    async with connected(endpoint) as client:
        status, answer = await client.ask(body, headers="x-stainless-retry-count: 4\r\n")
    return "42" if (status, answer["id"]) == (200, "turn_1") else str(answer)


async def _sends_garbage(row: EnvRow, endpoint: Any) -> str:
    garbage: list[Any] = [b"{", b"[]", b"\xff\xfe", {}, {"messages": 3}, {"messages": [{"role": "user"}], "n": 9}]
    async with connected(endpoint) as client:
        refused = [(await client.ask(body))[0] for body in garbage]
        refused += [(await client.ask({}, path="/nonsense"))[0], (await client.ask({"input": 1}, path="/responses"))[0]]
        status, _ = await client.ask({"messages": [{"role": "user", "content": "go"}]})
    return "42" if (set(refused), status) == ({400, 404}, 200) else f"{refused} {status}"


async def _never_stops(row: EnvRow, endpoint: Any) -> str:
    """Goes on asking, also after it has been told that the episode is over."""
    messages = [{"role": "user", "content": "go"}]
    async with connected(endpoint) as client:
        while True:
            status, body = await client.ask({"messages": messages})
            if status == 200:
                messages += [body["choices"][0]["message"], {"role": "user", "content": "on"}]
            await asyncio.sleep(0)


async def _delegates_without_end(row: EnvRow, endpoint: Any) -> str:
    async def helper(number: int) -> int:
        async with connected(endpoint) as client:
            said = [{"role": "system", "content": f"helper {number}"}, {"role": "user", "content": "go"}]
            return (await client.ask({"messages": said}))[0]

    async with connected(endpoint) as client:
        await client.ask({"messages": [{"role": "user", "content": "go"}]})
    statuses = await asyncio.gather(*map(helper, range(12)))
    return "42" if statuses.count(200) == 8 and statuses.count(404) == 4 else str(statuses)


_PROGRAM = """
import json, os, subprocess, sys, time, urllib.request
task = json.load(sys.stdin)
body = json.dumps({"messages": task["prompt"]}).encode()
url, kind = os.environ["OPENAI_BASE_URL"] + "/chat/completions", {"Content-Type": "application/json"}
urllib.request.urlopen(urllib.request.Request(url, body, kind)).read()
"""
_LEAVES_CHILD = [sys.executable, "-S", "-c", _PROGRAM + """
subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(3600)"], start_new_session=True)
sys.stdout.write("42")
"""]  # fmt: skip
_HANGING_PROGRAM = [sys.executable, "-S", "-c", _PROGRAM + "time.sleep(3600)"]
_CRASHING_PROGRAM = [sys.executable, "-S", "-c", _PROGRAM + "sys.exit('no')"]
_INFRA, _FAILED, _ANSWERED = StopReason.INFRA_ERROR, StopReason.AGENT_FAILED, StopReason.ANSWERED
_FAULTS = {
    "good": Fault(_talking([]), _ANSWERED, 1.0),
    "hangs at once": Fault(_hangs_at_once, _INFRA),
    "hangs later": Fault(_hangs_later, _FAILED, options={"agent_timeout_s": 1.0}),
    "crashes at once": Fault(_crashes_at_once, _INFRA),
    "crashes later": Fault(_crashes_later, _FAILED),
    "retries": Fault(_retries, _ANSWERED, 1.0),
    "sends garbage": Fault(_sends_garbage, _ANSWERED, 1.0),
    "exceeds budgets": Fault(_talking([], turns=20), StopReason.MAX_TURNS),
    "never stops": Fault(_never_stops, StopReason.MAX_TURNS),
    "delegates without end": Fault(_delegates_without_end, _ANSWERED, 1.0, {"max_sides": 8}),
    "leaves a child": Fault(_LEAVES_CHILD, _ANSWERED, 1.0),
    "hanging program": Fault(_HANGING_PROGRAM, _FAILED, options={"agent_timeout_s": 3.0}),
    "crashing program": Fault(_CRASHING_PROGRAM, _FAILED),
}
_MAX_PROGRAMS = 4  # of each kind: every one is an interpreter


async def _faults(stage: Stage, *, each: int) -> tuple[list[str], list[str], int]:
    """Returns what ended otherwise than it must, what is left, and the number of agents."""
    global _LIMITS
    before, _LIMITS = set(groups()), EpisodeLimits(**{**vars(_LIMITS), "start_timeout_s": 15.0})
    await stage.play(lambda row: make_env(row, agent=_talking([]), score=_is_right), name="first")
    descriptors = len(os.listdir("/proc/self/fd"))
    ports: set[tuple[str, int]] = set()

    async def one(name: str, fault: Fault, number: int) -> str | None:
        env = None

        def make(row: EnvRow) -> Any:
            nonlocal env
            env = make_env(row, agent=fault.agent, score=_is_right, **{"grace_s": 0.5, **fault.options})
            return env

        turn_s = 0.2 if name == "retries" else 0.01
        episode = await stage.play(make, name=f"{name} {number}", turn_s=turn_s)
        ports.update(("127.0.0.1", urlsplit(url).port or 0) for url in _gateway_urls())
        got, must = (episode.stop_reason, episode.reward.outcome), (fault.stop, fault.outcome)
        return None if got == must else f"{name}: {got} instead of {must}: {episode.error or episode.reward.details}"

    plays = [
        one(name, fault, number)
        for name, fault in _FAULTS.items()
        for number in range(each if callable(fault.agent) else min(each, _MAX_PROGRAMS))
    ]
    complaints = [complaint for complaint in await asyncio.gather(*plays) if complaint is not None]
    gc.collect()
    left = await leftovers(before)
    left += [f"gateway {url}" for url in _gateway_urls()]
    left += [f"open port {place}" for place in ports if _is_open(place)]
    opened = len(os.listdir("/proc/self/fd")) - descriptors
    return complaints, left + [f"{opened} descriptors"] * (opened > 0), len(plays)


def _gateway_urls() -> list[str]:
    return [server.gateway.url for server in gateway_servers.list_lent()]


def _is_open(place: tuple[str, int]) -> bool:
    with socket.socket() as one:
        return one.connect_ex(place) == 0


if __name__ == "__main__":
    sys.exit(main())
