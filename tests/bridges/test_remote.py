"""Environments in a server: the same episodes as without one, and nothing left behind when either side disappears."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from fakes import END, LIMITS, ROW, FakeEnv, encode, episode_setup

from verl_agentic.base.deadlines import spend_code
from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import ConfigError, DataError, EnvBusyError, EnvError, EnvUnavailableError, SandboxError
from verl_agentic.base.tools.delegate import DelegateTool
from verl_agentic.base.tools.plain_schema import list_schemas
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Action, Message, Observation, Reward, StopReason, ToolCall
from verl_agentic.cli import main
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.collect import scripted
from verl_agentic.episode.env_package import EnvPackage, load_env_package
from verl_agentic.episode.policies.policy import ScriptedPolicy
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.run_episode import run_episode
from verl_agentic.rewards.sample import Sample
from verl_agentic.sandbox.interface import SpentSandboxError, check_path

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")
pytest.importorskip("fastapi")

from loopback import serving_app  # noqa: E402

from verl_agentic.bridges.remote.package import make_env, make_rows  # noqa: E402
from verl_agentic.bridges.remote.server import make_app  # noqa: E402
from verl_agentic.bridges.remote.sessions import EnvServerConfig, EnvSessions  # noqa: E402

LONG = EpisodeLimits(max_response_tokens=100_000, max_context_tokens=200_000, max_turns=30, max_retries=0)
CALL = Action(turn=0, text="", content="", tool_calls=(ToolCall("a", {}),))


@dataclass
class Server:
    url: str
    sessions: EnvSessions
    requests: list[str] = field(default_factory=list)
    """Paths of the requests so far."""

    def health(self, name: str) -> int:
        return self.sessions.health()[name]


def package_of(factory: Callable[..., Any], **offers: Any) -> EnvPackage:
    offers = {"make_rows": None, "gold": None, "demonstrator": None, **offers}
    return EnvPackage(env_id="fake", folder=Path(), make_env=factory, **offers)


@contextlib.asynccontextmanager
async def serving(
    package: EnvPackage | Callable[..., Any], wrap: Callable[[Any], Any] = lambda app: app, **config: Any
) -> AsyncIterator[Server]:
    """Serves a package, or the environments of a factory; `wrap` may change the application."""
    made = package if isinstance(package, EnvPackage) else package_of(package)
    sessions = EnvSessions(made, config=EnvServerConfig(**config))
    requests: list[str] = []
    app = wrap(make_app(sessions))

    async def counted(scope: Any, receive: Any, send: Any) -> None:
        requests.append(scope["path"])
        await app(scope, receive, send)

    await sessions.start()
    try:
        async with serving_app(counted) as url:
            yield Server(url, sessions, requests)
    finally:
        await sessions.close()


async def until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.01)


def script(*turns: str) -> ScriptedPolicy:
    return ScriptedPolicy(
        lambda messages: turns[sum(m.role == "assistant" for m in messages)], encode=encode, end_ids=[END]
    )


async def play(
    factory: Callable[[EnvRow], Any], *turns: str, limits: EpisodeLimits = LIMITS, **options: Any
) -> Episode:
    setup = episode_setup(script(*turns), limits, **options)
    return await run_episode(ROW, make_env=factory, setup=setup, request_id="r")


def untimed(episode: Episode) -> dict[str, Any]:
    """Returns an episode without durations."""
    messages = [replace(message, elapsed_s=0.0) for message in episode.messages]
    timed = {"spans": (), "generate_s": 0.0, "env_s": 0.0}
    return {**vars(episode), **timed, "messages": messages}


# The same episodes.


@pytest.mark.sample(1)
@pytest.mark.parametrize("env_id", ["python_math", "text_game", "function_calling", "search_qa"])
async def test_an_episode_is_the_same_with_a_server(env_id: str, tiny_chat: Any) -> None:
    tokenizer, codec = tiny_chat
    package = load_env_package(env_id)
    assert package.make_rows is not None and package.gold is not None
    rows = package.make_rows(split="test", count=2, seed=0)

    def confused(messages: Sequence[Message]) -> str:
        turns = [
            "<tool_call>broken",
            '<tool_call>{"name": "odd", "arguments": {"x": "\\ud800"}}</tool_call>',
            "I give up.",
        ]
        return turns[min(2, sum(message.role == "assistant" for message in messages))]

    async with serving(package) as server:
        for row in rows:
            for turns in (package.gold(row), confused):
                setup = scripted(turns, codec=codec, tokenizer=tokenizer, limits=LONG)
                both = [
                    untimed(await run_episode(row, make_env=factory, setup=setup, request_id="r"))
                    for factory in (package.make_env, lambda row: make_env(row, url=server.url))
                ]
                assert both[0] == both[1]
                assert both[0]["reward"].outcome == (turns is not confused) and not both[0]["error"]
        assert server.health("sessions") == 0


class RichEnv:
    """Uses everything that an environment may return."""

    def __init__(self, row: EnvRow) -> None:
        self.row, self.steps = row, 0

    @property
    def tools(self) -> Sequence[Any]:
        return [Named("a"), *([Named("b")] if self.steps else [])]

    async def start(self) -> tuple[Message, ...]:
        return (Message("system", "rules"), *self.row.prompt, Message("user", "quoted", quoted="ted", reasoning="r"))

    def state_key(self) -> str:
        return f"state {self.steps}"

    async def step(self, action: Action) -> Observation:
        self.steps += 1
        if not action.tool_calls:
            return Observation(stop=StopReason.ENV_DONE, reward=0.5, info={"ends": 1})
        message = Message("tool", "odd \ud800 text", name="a", call_id="c", is_error=True, error_kind="unknown_tool")
        return Observation((message,), reward=0.25, info={"tool_calls": 1, "share": 0.5})

    async def score(self, transcript: Transcript) -> Reward:
        kinds = [message.error_kind for message in transcript.messages if message.error_kind]
        details = {"answer": transcript.final_answer, "kinds": kinds, "turns": [a.turn for a in transcript.actions]}
        return Reward(0.0, parts={"format": 0.25}, info={"steps": self.steps}, details=details)

    async def guidance(self, transcript: Transcript) -> str:
        return f"after {len(transcript.actions)} turns"

    async def close(self) -> None:
        pass


@dataclass
class Named:
    name: str

    @property
    def schema(self) -> dict[str, Any]:
        return {
            "type": "function",
            "function": {"name": self.name, "parameters": {"type": "object", "x-own": [1, None]}},
        }


async def test_everything_that_an_environment_returns_travels() -> None:
    turns = ("call:a", "call:b", "it is 41")
    async with serving(RichEnv) as server:
        there = await play(lambda row: make_env(row, url=server.url), *turns, guidance=True)
        env = make_env(ROW, url=server.url)
        assert not hasattr(env, "state_key") and not hasattr(env, "guidance")
        assert await env.start() == await RichEnv(ROW).start()
        assert [dict(tool.schema) for tool in env.tools] == [Named("a").schema]
        await env.step(CALL)
        assert [tool.name for tool in env.tools] == ["a", "b"]
        await env.close()
    here = await play(RichEnv, *turns, guidance=True)
    assert untimed(there) == untimed(here)
    assert here.states[2] == "state 2" and here.info["guided"] == 1 and here.turn_rewards == {0: 0.25, 1: 0.25, 2: 0.5}


@pytest.mark.parametrize("shows_own", [False, True])
async def test_a_prompt_shows_the_same_tools_with_a_server(shows_own: bool) -> None:
    class Nullable(Named):
        shows_own_schema = shows_own

        @property
        def schema(self) -> dict[str, Any]:
            properties = {"x": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}
            return {"type": "function", "function": {"name": self.name, "parameters": {"properties": properties}}}

    def factory(row: EnvRow) -> FakeEnv:
        env = FakeEnv(row)
        env.tools = [Nullable("a")]  # type: ignore[misc]
        return env

    async with serving(factory) as server:
        env = make_env(ROW, url=server.url)
        await env.start()
        assert list_schemas(env.tools) == list_schemas([Nullable("a")])
        await env.close()


async def test_optional_methods_are_absent_where_the_environment_has_none() -> None:
    async with serving(FakeEnv) as server:
        env = make_env(ROW, url=server.url)
        await env.start()
        assert not hasattr(env, "state_key") and not hasattr(env, "guidance") and not hasattr(env, "use_sub_agents")
        await env.close()


def failing(error: BaseException) -> Callable[..., FakeEnv]:
    def hook(action: Action) -> None:
        raise error

    return lambda row: FakeEnv(row, step_hook=hook)


@pytest.mark.sample(2)
@pytest.mark.parametrize("error", [SandboxError("no box"), ValueError("a fault"), EnvError("gone"), SystemExit(3)])
async def test_a_failure_of_the_environment_is_the_same_error_with_a_server(error: BaseException) -> None:
    async with serving(failing(error)) as server:
        there = await play(lambda row: make_env(row, url=server.url), "call:a")
        assert server.health("sessions") == 0
    here, away = untimed(await play(failing(error), "call:a")), untimed(there)
    assert str(here.pop("error")).startswith(str(away.pop("error")))  # the place in the code is where it runs
    del here["traceback"], away["traceback"]
    assert here == away and there.stop_reason is StopReason.INFRA_ERROR


async def _spend() -> None:
    spend_code(1e3)
    await asyncio.sleep(60)


def _fill() -> None:
    raise SpentSandboxError("died of memory")


@pytest.mark.sample(1)
@pytest.mark.parametrize("act", [_spend, _fill, lambda: check_path("../x")])
async def test_what_the_policy_causes_on_a_server_is_its_failure_and_not_void(act: Callable[[], Any]) -> None:
    async with serving(lambda row, **_: FakeEnv(row, step_hook=lambda _: act())) as server:
        limits = replace(LIMITS, turn_timeout_s=1.0)
        episode = await play(lambda row: make_env(row, url=server.url), "call:a", limits=limits)
    assert episode.stop_reason is StopReason.POLICY_FAULT and not episode.is_void, episode.error


async def test_an_error_of_the_row_or_of_the_configuration_ends_the_run_and_no_row_is_void() -> None:
    def refuse(row: EnvRow, *, level: int = 1) -> FakeEnv:
        raise DataError("row without a board") if level == 1 else ConfigError(f"no level {level}")

    async with serving(refuse, client_config={"level": ()}) as server:
        with pytest.raises(DataError, match="row without a board"):
            await play(lambda row: make_env(row, url=server.url), "42")
        with pytest.raises(ConfigError, match="no level 2"):
            await play(lambda row: make_env(row, url=server.url, config={"level": 2}), "42")
        assert server.health("sessions") == 0


def loads_code() -> None:
    raise AssertionError("a client has run code on the server")


@pytest.mark.slow
async def test_a_client_sets_only_what_the_operator_has_named(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []

    def make(row: EnvRow, **config: Any) -> FakeEnv:
        seen.append(config)
        return FakeEnv(row)

    package = package_of(make, make_rows=lambda *, split, count, seed, **options: seen.append(options) or [])
    allowed = {"level": (), "game": ("chess", "go"), "size": (3,)}
    code = f"{__name__}:loads_code"
    refused: list[dict[str, Any]] = [
        {"checker": code}, {"level": code}, {"level": "3"}, {"level": [3]}, {"level": {"a": 1}}, {"game": code},
        {"game": "Chess"}, {"game": 1}, {"size": 4}, {"size": True}, {"size": 3.0}, {"level": 2, "backend": "local"},
    ]  # fmt: skip
    async with serving(package, client_config=allowed) as server:
        monkeypatch.setenv("VERL_AGENTIC_ENV_URL", server.url)
        for config in refused:
            with pytest.raises(ConfigError, match="clients"):
                await play(functools.partial(make_env, url=server.url, config=config), "42")
            with pytest.raises(ConfigError, match="clients"):
                await make_env(ROW, url=server.url, config=config).select(["a"])  # type: ignore[attr-defined]
            with pytest.raises(ConfigError, match="clients"):
                await asyncio.to_thread(make_rows, split="test", count=1, seed=0, **config)
        for split in ("../../etc", "os:execlp", ""):
            with pytest.raises(DataError, match="split"):
                await asyncio.to_thread(make_rows, split=split, count=1, seed=0)
        assert not seen
        given: dict[str, Any] = {"level": 2, "game": "go", "size": 3}
        await play(functools.partial(make_env, url=server.url, config=given), "42")
        await asyncio.to_thread(make_rows, split="test", count=1, seed=0, level=None)
    assert seen == [given, {"level": None}]


async def test_an_environment_with_sub_agents_is_refused() -> None:
    async with serving(lambda row: ToolEnv(row, [DelegateTool()])) as server:
        with pytest.raises(ConfigError, match="sub-agents"):
            await play(lambda row: make_env(row, url=server.url), "42")


async def test_an_agent_is_refused_before_it_starts() -> None:
    class PlayingEnv(ToolEnv):
        async def start(self) -> tuple[Message, ...]:
            raise AssertionError("the agent was started")

        async def play_conversations(self, open_conversation: Any) -> StopReason:
            return StopReason.ANSWERED

    async with serving(lambda row: PlayingEnv(row, [])) as server:
        with pytest.raises(ConfigError, match=r"got PlayingEnv; set agentic\.env .*agentic\.env_config\.agent"):
            await play(lambda row: make_env(row, url=server.url), "42")


async def test_the_package_of_an_environment_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    class Selecting(FakeEnv):
        async def select(self, answers: Sequence[str]) -> int | None:
            return answers.index("best")

    served = package_of(
        Selecting,
        make_rows=lambda *, split, count, seed: [replace(ROW, extra={"id": f"{split}{seed}{i}"}) for i in range(count)],
        gold=lambda row: lambda messages: Message("assistant", f"{row.ground_truth} after {len(messages)}"),
        describe=lambda sample: f"did {sample.final_answer}",
    )
    remote = load_env_package("remote")
    assert remote.gold is not None and remote.describe is not None
    sample = Sample(id="s", prompt=ROW.prompt, turns=(), final_answer="42", stop_reason=StopReason.ANSWERED)
    async with serving(served) as server:
        monkeypatch.setenv("VERL_AGENTIC_ENV_URL", server.url)
        rows = await asyncio.to_thread(make_rows, split="test", count=2, seed=3)
        assert rows == [replace(ROW, extra={"id": "test30"}), replace(ROW, extra={"id": "test31"})]
        assert (await asyncio.to_thread(remote.gold(ROW), ROW.prompt)).content == "42 after 1"
        assert await asyncio.to_thread(remote.describe, sample) == "did 42"
        assert await remote.make_env(ROW).select(["good", "best"]) == 1  # type: ignore[attr-defined]
    async with serving(FakeEnv) as server:
        monkeypatch.setenv("VERL_AGENTIC_ENV_URL", server.url)
        with pytest.raises(ConfigError, match="make_rows"):
            await asyncio.to_thread(make_rows, split="test", count=2, seed=3)
        with pytest.raises(ConfigError, match="FakeEnv"):
            await remote.make_env(ROW).select(["good"])  # type: ignore[attr-defined]


# Many sessions.


async def test_64_sessions_at_once_share_requests() -> None:
    stepping, all_step = [], asyncio.Event()

    async def wait_for_all(_: Action) -> None:
        stepping.append(1)
        if len(stepping) == 64:
            all_step.set()
        await all_step.wait()

    async with serving(lambda row: FakeEnv(row, step_hook=wait_for_all)) as server:
        episodes = await asyncio.gather(
            *(play(lambda row: make_env(row, url=server.url), "call:a", "42") for _ in range(64))
        )
        assert server.health("started") == server.health("closed") == 64
        assert server.requests.count("/v1/calls") < 64  # of 5 * 64 calls
    assert [episode.reward.outcome for episode in episodes] == [1.0] * 64


async def test_a_slow_call_does_not_delay_the_others_of_its_request() -> None:
    fast_is_back = asyncio.Event()
    factory = lambda row: FakeEnv(row, step_hook=lambda _: fast_is_back.wait() if row.data_source == "slow" else None)  # noqa: E731
    async with serving(factory) as server:
        envs = [
            make_env(replace(ROW, data_source=name), url=server.url, batch_wait_s=0.05) for name in ("slow", "fast")
        ]
        await asyncio.gather(*(env.start() for env in envs))
        before = len(server.requests)
        slow, fast = (asyncio.ensure_future(env.step(CALL)) for env in envs)
        await asyncio.wait_for(fast, 30)
        assert len(server.requests) - before == 1 and not slow.done()
        fast_is_back.set()
        await slow
        await asyncio.gather(*(env.close() for env in envs))


async def test_a_client_of_a_full_server_waits_for_a_free_session() -> None:
    async with serving(FakeEnv, max_sessions=1, retry_after_s=0.02) as server:
        first, second = (make_env(ROW, url=server.url) for _ in range(2))
        await first.start()
        waiting = asyncio.ensure_future(second.start())
        await until(lambda: server.health("refused") >= 2)
        assert not waiting.done() and server.health("sessions") == 1
        await first.close()
        assert await waiting == ROW.prompt
        with pytest.raises(EnvBusyError, match="at most 1 sessions"):
            await make_env(ROW, url=server.url, wait_s=0.05).start()
        await second.close()
        assert server.health("sessions") == 0


async def test_of_several_servers_the_one_with_room_is_used() -> None:
    async with serving(FakeEnv, max_sessions=1) as one, serving(FakeEnv, max_sessions=2) as two:
        envs = [make_env(ROW, url=[one.url, two.url]) for _ in range(3)]
        await asyncio.gather(*(env.start() for env in envs))
        assert (one.health("sessions"), two.health("sessions")) == (1, 2)
        await asyncio.gather(*(env.close() for env in envs))


async def test_only_clients_with_the_token_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(FakeEnv, token="secret") as server:
        for token in ("", "other"):
            with pytest.raises(ConfigError, match="HTTP 401"):
                await make_env(ROW, url=server.url, token=token).start()
        assert server.health("started") == 0
        env = make_env(ROW, url=server.url, token="secret")
        await env.start()
        await env.close()
        async with httpx.AsyncClient() as http:
            assert (await http.get(f"{server.url}/health")).json()["started"] == 1
            refused = await http.post(f"{server.url}/v1/renew", json={"sessions": []})
    assert refused.status_code == 401


# Ends of either side.


@pytest.mark.slow
async def test_a_client_that_vanishes_loses_its_environment_and_one_that_is_slow_does_not() -> None:
    envs: list[FakeEnv] = []
    factory = lambda row: envs.append(FakeEnv(row, step_hook=lambda _: asyncio.Event().wait())) or envs[-1]  # noqa: E731
    async with serving(factory, lease_s=0.3) as server, httpx.AsyncClient(base_url=server.url) as http:
        data = {"row": {"prompt": [], "ground_truth": "42"}, "config": {}}
        start = {"op": "start", "session": "gone", "number": 0, "data": data}
        action = {"turn": 0, "text": "", "content": "", "tool_calls": []}
        step = {"op": "step", "session": "gone", "number": 1, "data": {"action": action}}
        assert "result" in (await http.post("/v1/calls", json={"calls": [start]})).json()
        with pytest.raises(httpx.ReadTimeout):
            await http.post("/v1/calls", json={"calls": [step]}, timeout=0.05)
        slow = make_env(ROW, url=server.url)
        await slow.start()
        await until(lambda: server.health("expired") == 1 and server.health("sessions") == 1)
        await asyncio.sleep(0.6)
        assert [env.closed for env in envs] == [1, 0]
        await slow.close()
        late = (await http.post("/v1/calls", json={"calls": [{**step, "number": 2}]})).json()
        assert late["error"] == "EnvUnavailableError" and "no session gone" in late["detail"]


@pytest.mark.slow
async def test_no_environment_is_lost_because_the_event_loop_of_its_server_was_held_up() -> None:
    async with serving(FakeEnv, lease_s=0.4) as server:
        env = make_env(ROW, url=server.url)
        await env.start()
        time.sleep(0.8)
        await asyncio.sleep(0.05)
        assert (await env.step(CALL)).messages and server.health("expired") == 0
        await env.close()


async def test_a_step_that_outlasts_its_deadline_is_ended_on_the_server() -> None:
    envs: list[FakeEnv] = []
    ended: list[bool] = []

    async def hang(_: Action) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(envs[0].closed == 0)

    async with serving(lambda row: envs.append(FakeEnv(row, step_hook=hang)) or envs[-1]) as server:
        limits = replace(LIMITS, turn_timeout_s=0.2)
        episode = await play(lambda row: make_env(row, url=server.url), "call:a", limits=limits)
        assert episode.stop_reason is StopReason.TIMEOUT
        assert (server.health("sessions"), ended, envs[0].closed) == (0, [True], 1)


def cutting(lost: int) -> Callable[[Any], Any]:
    """Returns what cuts the connection instead of the answers to the first `lost` requests after the first one."""

    def wrap(app: Any) -> Any:
        seen = [0]

        async def cut(scope: Any, receive: Any, send: Any) -> None:
            seen[0] += scope["path"] == "/v1/calls"
            if not 2 <= seen[0] <= lost + 1:
                await app(scope, receive, send)
                return

            async def swallow(message: Any) -> None:
                if message["type"] == "http.response.start":
                    await send({**message, "headers": [(b"content-length", b"9999")]})

            await app(scope, receive, swallow)

        return cut

    return wrap


async def test_a_step_whose_answer_was_lost_is_carried_out_once() -> None:
    steps: list[Action] = []
    async with serving(lambda row: FakeEnv(row, step_hook=steps.append), cutting(2)) as server:
        env = make_env(ROW, url=server.url)
        await env.start()
        assert (await env.step(CALL)).messages == (Message("tool", "42"),)
        assert len(steps) == 1 and len([path for path in server.requests if path == "/v1/calls"]) == 4
        await env.close()


@pytest.mark.slow
async def test_a_server_that_ends_closes_its_environments_and_the_client_says_so() -> None:
    envs: list[FakeEnv] = []
    async with serving(lambda row: envs.append(FakeEnv(row)) or envs[-1]) as server:
        env = make_env(ROW, url=server.url)
        await env.start()
    assert envs[0].closed == 1
    with pytest.raises(EnvUnavailableError, match="cannot be reached"):
        await env.step(CALL)
    await env.close()


@pytest.mark.slow
async def test_calls_to_a_server_that_no_longer_answers_end_with_its_lease() -> None:
    hangs = asyncio.Event()

    def wrap(app: Any) -> Any:
        async def hang(scope: Any, receive: Any, send: Any) -> None:
            await (asyncio.sleep(60) if hangs.is_set() else app(scope, receive, send))

        return hang

    async with serving(FakeEnv, wrap, lease_s=0.1) as server:
        env = make_env(ROW, url=server.url)
        await env.start()
        await until(lambda: "/v1/renew" in server.requests)
        hangs.set()
        with pytest.raises(EnvUnavailableError, match="cannot be reached"):
            await asyncio.wait_for(env.step(CALL), 20)


SERVED = """
import asyncio
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Reward

class Waiting(ToolEnv):
    async def step(self, action):
        print("stepping", flush=True)
        await asyncio.sleep(3600)

    async def score(self, transcript):
        return Reward(0.0)

def make_env(row):
    return Waiting(row, [])
"""


def _with_path() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


@pytest.fixture
def served(tmp_path: Path) -> Any:
    """A server of another process, at its URL, whose environments never end a step."""
    (tmp_path / "waiting.py").write_text(SERVED)
    (tmp_path / "token").write_text("secret\n")
    command = "import sys; from verl_agentic.cli import main; sys.exit(main(sys.argv[1:]))"
    options = ["--port", "0", "--token-file", str(tmp_path / "token"), "--max-sessions", "3"]
    process = subprocess.Popen(
        [sys.executable, "-c", command, "env", "serve", f"{tmp_path / 'waiting.py'}:make_env", *options],
        stdout=subprocess.PIPE, text=True, env=_with_path(),
    )  # fmt: skip
    assert process.stdout is not None
    yield process, process.stdout.readline()
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.slow
async def test_the_episodes_of_a_killed_server_go_on_at_another_one(served: Any) -> None:
    process, line = served
    assert line.endswith("at most 3 sessions\n")
    url = line.split(" at ")[1].split(",")[0]
    async with serving(FakeEnv, token="secret", max_sessions=5) as other:
        fillers = [make_env(ROW, url=other.url, token="secret") for _ in range(3)]
        await asyncio.gather(*(env.start() for env in fillers))
        urls = [url, other.url]
        playing = [
            asyncio.ensure_future(play(lambda row: make_env(row, url=urls, token="secret"), "call:a", "42"))
            for _ in range(2)
        ]
        assert await asyncio.to_thread(process.stdout.readline) == "stepping\n"
        alone = asyncio.ensure_future(
            play(lambda row: make_env(row, url=url, token="secret", wait_s=0.1), "call:a", "42")
        )
        assert await asyncio.to_thread(process.stdout.readline) == "stepping\n"
        os.kill(process.pid, signal.SIGKILL)
        episodes = await asyncio.gather(*playing)
        assert [episode.reward.outcome for episode in episodes] == [1.0, 1.0]
        assert sorted(episode.retries for episode in episodes) == [0, 1]
        void = await alone
        assert (void.stop_reason, void.error_kind, void.retries) == (StopReason.INFRA_ERROR, "env", 1)
        assert "EnvUnavailableError" in (void.error or "") and url in (void.error or "")
        await asyncio.gather(*(env.close() for env in fillers))
        assert other.health("sessions") == 0
    names = {getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()}
    assert not [name for name in names if name.startswith(("EnvLink", "RemoteEnv"))]


@pytest.mark.slow
def test_a_server_needs_neither_verl_nor_any_package_beside_fastapi_and_pydantic() -> None:
    absent = (
        "verl",
        "torch",
        "ray",
        "transformers",
        "numpy",
        "pandas",
        "pyarrow",
        "httpx",
        "jsonschema",
        "rich",
        "yaml",
    )
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({absent}))\n"
        "import verl_agentic.cli, verl_agentic.evaluate.cli.env.serve, verl_agentic.bridges.remote.server\n"
        "from verl_agentic.episode.env_package import load_env_package\n"
        "package = load_env_package('text_game')\n"
        "package.make_env(package.make_rows(split='test', count=1, seed=0)[0])"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=_with_path(), timeout=240)


def test_wrong_use_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERL_AGENTIC_ENV_URL", raising=False)
    for url in (None, "127.0.0.1:80", ["http://a", "ftp://b"]):
        with pytest.raises(ConfigError, match="VERL_AGENTIC_ENV_URL"):
            make_env(ROW, url=url)
    assert main(["env", "serve", "text_game", "--host", "0.0.0.0"]) == 2
    assert "needs a token" in capsys.readouterr().err
    assert main(["env", "serve", "no_such_env", "--port", "0"]) == 2
    assert "unknown environment" in capsys.readouterr().err


async def test_requests_that_are_no_calls_are_refused() -> None:
    async with serving(FakeEnv, max_request_mb=1) as server, httpx.AsyncClient(base_url=server.url) as http:
        bodies = [b"{", b"[]", b'{"calls": 3}', b'{"calls": [3]}', b" " * 2**21]
        kind = {"Content-Type": "application/json"}
        codes = [(await http.post("/v1/calls", content=body, headers=kind)).status_code for body in bodies]
        assert codes == [400, 400, 400, 400, 413]
        calls = [
            {},
            {"op": "dance", "session": "s", "data": {}},
            {"op": "step", "session": "s", "number": 0, "data": {}},
        ]
        lines = (await http.post("/v1/calls", json={"calls": calls})).text.splitlines()
        errors = {answer["call"]: answer["error"] for answer in map(json.loads, lines)}
    assert errors == {0: "DataError", 1: "DataError", 2: "EnvUnavailableError"}
