"""Episodes on a server with AgentGym's contract, in the dialects of its servers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from fakes import LIMITS, episode_setup

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import ConfigError, DataError, EnvError, EnvUnavailableError
from verl_agentic.base.types import Action, Message, StopReason, ToolCall
from verl_agentic.bridges.agentgym import make_env, make_rows
from verl_agentic.episode.run_episode import run_episode

pytest.importorskip("httpx")
fastapi = pytest.importorskip("fastapi")

from loopback import serving_app  # noqa: E402

OVER = Transcript(messages=(), actions=(), stop_reason=StopReason.ENV_DONE)


def row(task: str, number: int = 3) -> EnvRow:
    return EnvRow(prompt=(Message("user", "Play."),), extra={"task": task, "task_index": number})


@dataclass
class Server:
    """Answers as the servers in AgentGym's repository do: a game that is won by naming the number of its task."""

    task: str
    has_close: bool = True
    games: dict[int, int] = field(default_factory=dict)
    closed: list[int] = field(default_factory=list)
    created: int = 0
    url: str = ""

    def seen(self, number: int) -> dict[str, Any]:
        text = f"game {number}"
        return {
            "textcraft": {"observation": text, "done": False, "reward": 0},
            "sciworld": {"observation": text, "done": False, "reward": 0, "score": 0, "task_description": "Boil."},
            "alfworld": {"observation": text, "available_actions": ["look", "go"], "done": False, "reward": 0.0},
            "webshop": {"state": text, "done": False, "reward": 0.0, "info": None},
        }[self.task]

    def app(self) -> Any:
        app = fastapi.FastAPI()
        id_key, task_key = {"webshop": ("env_idx", "session_id"), "alfworld": ("id", "game")}.get(
            self.task, ("id", "data_idx")
        )

        def living(number: int) -> int:
            if number not in range(self.created) or number in self.closed:
                raise ValueError(f"The id {number} is not valid.")
            return number

        @app.post("/create")
        async def create() -> Any:
            self.created += 1
            return self.created - 1 if self.task == "webshop" else {"id": self.created - 1}

        @app.post("/reset")
        async def reset(body: dict[str, Any]) -> Any:
            if self.task == "alfworld" and body["world_type"] != "Text":
                return {"error": "world_type"}
            self.games[living(body[id_key])] = body[task_key]
            return ["", None] if self.task == "webshop" else self.seen(body[task_key])

        @app.get("/observation")
        async def observation(env_idx: int) -> Any:
            return f"page {self.games[env_idx]}"

        @app.post("/step")
        async def step(body: dict[str, Any]) -> Any:
            try:
                number = self.games[living(body[id_key])]
                won = int(body["action"]) == number
            except ValueError as cause:
                return {"error": str(cause)}
            paid = {"score": 100 * won, "reward": 7} if self.task == "sciworld" else {"reward": float(won)}
            return {**self.seen(number), **paid, "done": won}

        if self.has_close:

            @app.post("/close")
            async def close(body: dict[str, Any]) -> Any:
                self.closed.append(body[id_key])
                return {"closed": True}

        return app


@contextlib.asynccontextmanager
async def serving(task: str, **options: Any) -> AsyncIterator[Server]:
    server = Server(task, **options)
    async with serving_app(server.app()) as server.url:
        yield server


def acting(*actions: str) -> Action:
    return Action(turn=0, text="", content="", tool_calls=tuple(ToolCall("act", {"action": one}) for one in actions))


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("task", "first"),
    [
        ("textcraft", "game 3"),
        ("sciworld", "Boil.\ngame 3"),
        ("alfworld", "game 3\nAvailable actions: look, go"),
        ("webshop", "page 3"),
    ],
)
async def test_an_episode_in_every_dialect(task: str, first: str) -> None:
    async with serving(task) as server:
        env = make_env(row(task), url={task: server.url})
        assert [message.content for message in await env.start()] == [f"Play.\n\n{first}"]
        seen = await env.step(acting("1"))
        assert seen.messages[0].content.startswith("game 3") and seen.stop is None
        assert (await env.score(OVER)).outcome == 0.0
        seen = await env.step(acting("3", "1"))
        assert seen.stop is StopReason.ENV_DONE and "is over" in seen.messages[1].content
        assert (await env.score(OVER)).outcome == 1.0
        await env.close()
        assert server.closed == [0]


async def test_a_reset_is_idempotent() -> None:
    async with serving("textcraft") as server:
        env = make_env(row("textcraft"), url=server.url)
        (prompt,) = await env.start()
        await env.step(acting("3"))
        texts = [await env.reset() for _ in range(2)]
        assert prompt.content == f"Play.\n\n{texts[0]}" and texts[0] == texts[1]
        assert (await env.score(OVER)).outcome == 0.0
        assert (await env.step(acting("3"))).stop is StopReason.ENV_DONE
        assert server.created == 1
        await env.close()


class Raising:
    async def generate(self, *args: Any, **options: Any) -> Any:
        raise ConnectionError("no policy")


class Hanging:
    async def generate(self, *args: Any, **options: Any) -> Any:
        await asyncio.Event().wait()


async def test_the_environment_is_closed_also_after_an_exception_or_a_cancellation() -> None:
    async with serving("textcraft") as server:
        options: dict[str, Any] = {"make_env": lambda row: make_env(row, url=server.url), "request_id": "r"}
        episode = await run_episode(row("textcraft"), setup=episode_setup(Raising(), LIMITS), **options)  # type: ignore[arg-type]
        assert episode.stop_reason is StopReason.INFRA_ERROR
        assert (server.created, server.closed) == (2, [0, 1])
        playing = asyncio.ensure_future(run_episode(row("textcraft"), setup=episode_setup(Hanging()), **options))  # type: ignore[arg-type]
        while 2 not in server.games:
            await asyncio.sleep(0.01)
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
        assert server.closed == [0, 1, 2]


async def test_a_server_without_close_is_left_alone() -> None:
    async with serving("textcraft", has_close=False) as server:
        env = make_env(row("textcraft"), url=server.url)
        await env.start()
        await env.close()
        assert (server.created, server.closed) == (1, [])


async def test_wrong_actions_are_errors_for_the_policy_and_lost_environments_are_failures() -> None:
    async with serving("textcraft") as server:
        env = make_env(row("textcraft"), url=server.url)
        await env.start()
        (message,) = (await env.step(acting("dance"))).messages
        assert message.error_kind == "tool_raised" and "invalid literal" in message.content
        assert (await env.step(Action(turn=0, text="", content="I stop."))).stop is StopReason.NO_ACTION
        server.closed.append(0)
        with pytest.raises(EnvError, match="is not valid"):
            await env.step(acting("3"))
    with pytest.raises(EnvUnavailableError, match="cannot be reached"):
        await env.step(acting("3"))
    await env.close()


def test_rows_name_their_task_and_wrong_use_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERL_AGENTIC_AGENTGYM_URL", raising=False)
    rows = {split: make_rows(split=split, count=20, seed=0) for split in ("train", "test")}
    drawn = {split: {(r.extra["task"], r.extra["task_index"]) for r in found} for split, found in rows.items()}
    assert len(drawn["train"]) == len(drawn["test"]) == 20 and not drawn["train"] & drawn["test"]
    assert {r.extra["task"] for r in make_rows(split="test", count=4, seed=0, task="babyai")} == {"babyai"}
    with pytest.raises(ConfigError, match="count=200"):
        make_rows(split="test", count=200, seed=0, task="babyai")
    with pytest.raises(ConfigError, match="VERL_AGENTIC_AGENTGYM_URL"):
        make_env(row("babyai"), url={"textcraft": "http://h"})
    with pytest.raises(DataError, match="task_index"):
        make_env(row("chess"), url="http://h")
