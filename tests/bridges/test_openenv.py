"""Episodes on an OpenEnv server: the real one where openenv-core is installed, else one that keeps its contract."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import ConfigError, EnvBusyError, EnvError, EnvUnavailableError
from verl_agentic.base.types import Action, Message, StopReason, ToolCall
from verl_agentic.bridges.openenv import make_env, make_rows

pytest.importorskip("websockets")
pytest.importorskip("httpx")
fastapi = pytest.importorskip("fastapi")

from loopback import serving_app  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the server's dependencies
ROW = EnvRow(prompt=(Message("user", "Guess."),), extra={"reset": {"seed": 7}})
OVER = Transcript(messages=(), actions=(), stop_reason=StopReason.ENV_DONE)


class Game:
    """Guess the seed. What the game says is the same in both servers."""

    def __init__(self) -> None:
        self.target, self.count = 0, 0

    def reset(self, seed: int) -> str:
        self.target, self.count = seed, 0
        return "a number below 10"

    def guess(self, number: int) -> tuple[str, float, bool]:
        if number > 99:
            raise RuntimeError("the display has two digits")
        self.count += 1
        won = number == self.target
        return "right" if won else "wrong", float(won), won


def real_app(*, has_tools: bool, max_sessions: int) -> Any:
    """Returns the application of openenv-core over the game."""
    server = pytest.importorskip("openenv.core.env_server.http_server", reason="openenv-core is not installed")
    from openenv.core.env_server.interfaces import Environment  # type: ignore
    from openenv.core.env_server.types import Action as Act  # type: ignore
    from openenv.core.env_server.types import Observation, State  # type: ignore
    from pydantic import Field

    class Guess(Act):
        """Guesses a number."""

        number: int = Field(description="the guess")

    class Hint(Observation):
        hint: str

    class GuessEnv(Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            self.game = Game()

        def reset(self, seed: Any = None, episode_id: Any = None, **kwargs: Any) -> Any:
            return Hint(hint=self.game.reset(seed))

        def step(self, action: Any, timeout_s: Any = None, **kwargs: Any) -> Any:
            hint, reward, done = self.game.guess(action.number)
            return Hint(hint=hint, reward=reward, done=done)

        @property
        def state(self) -> Any:
            return State(step_count=self.game.count)

    if not has_tools:
        return server.create_fastapi_app(GuessEnv, Guess, Hint, max_concurrent_envs=max_sessions)
    from fastmcp import FastMCP  # type: ignore
    from openenv.core.env_server.mcp_environment import MCPEnvironment  # type: ignore
    from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation  # type: ignore

    class ToolsEnv(MCPEnvironment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            mcp, self.game = FastMCP("guess"), Game()

            @mcp.tool
            def guess(number: int) -> str:
                """Guesses a number."""
                hint, self.last, self.done = self.game.guess(number)
                return hint

            super().__init__(mcp)

        def reset(self, seed: Any = None, episode_id: Any = None, **kwargs: Any) -> Any:
            self.last, self.done = 0.0, False
            return Observation(metadata={"hint": self.game.reset(seed)})

        def _step_impl(self, action: Any, timeout_s: Any = None, **kwargs: Any) -> Any:
            raise ValueError("only tools")

        async def step_async(self, action: Any, timeout_s: Any = None, **kwargs: Any) -> Any:
            seen = await super().step_async(action)
            if action.type == "call_tool":
                seen.reward, seen.done = self.last, self.done
            return seen

        @property
        def state(self) -> Any:
            return State(step_count=self.game.count)

    return server.create_fastapi_app(ToolsEnv, CallToolAction, CallToolObservation, max_concurrent_envs=max_sessions)


def fake_app(*, has_tools: bool, max_sessions: int) -> Any:
    """Returns an application that answers as openenv-core 0.3.0 answered over the same game."""
    app, free = fastapi.FastAPI(), [max_sessions]
    own = {"number": {"description": "the guess", "title": "Number", "type": "integer"}}
    of_tools = {"type": {"const": "call_tool"}, "tool_name": {"type": "string"}, "arguments": {"type": "object"}}
    properties = {"metadata": {"type": "object"}, **(of_tools if has_tools else own)}
    action = {"title": "Guess", "type": "object", "description": "Guesses a number.", "properties": properties}
    number = {"properties": {"number": {"type": "integer"}}, "required": ["number"], "type": "object"}
    listed = {"tools": [{"name": "guess", "description": "Guesses a number.", "input_schema": number}]}

    @app.get("/schema")
    def schema() -> Any:
        return {"action": {**action, "required": ["number"]}, "observation": {}, "state": {}}

    def answer(game: Game, message: dict[str, Any]) -> dict[str, Any]:
        data = message.get("data", {})
        if message["type"] == "state":
            return {"type": "state", "data": {"episode_id": None, "step_count": game.count}}
        if message["type"] == "reset":
            hint = game.reset(data["seed"])
            return observation({} if has_tools else {"hint": hint}, None, False)
        if data.get("type") == "list_tools":
            return observation(listed, None, False)
        arguments = data["arguments"] if has_tools else data
        if not isinstance(arguments.get("number"), int):
            problem = {"type": "int_parsing", "loc": ["number"], "msg": "Input should be a valid integer"}
            if has_tools:
                error = {"error_type": "execution_error", "message": "Input should be a valid integer"}
                return observation({"tool_name": "guess", "result": None, "error": error}, 0.0, False)
            return failure("Invalid message", "VALIDATION_ERROR", errors=[problem])
        hint, reward, done = game.guess(arguments["number"])
        result = {"content": [{"type": "text", "text": hint}], "structured_content": {"result": hint}}
        return observation(
            {"tool_name": "guess", "result": result, "error": None} if has_tools else {"hint": hint}, reward, done
        )

    @app.websocket("/ws")
    async def session(socket: fastapi.WebSocket) -> None:
        await socket.accept()
        if not free[0]:
            await socket.send_text(json.dumps(failure("Server at capacity: 1/1", "CAPACITY_REACHED")))
            await socket.close()
            return
        free[0] -= 1
        game = Game()
        with contextlib.suppress(fastapi.WebSocketDisconnect):
            while True:
                message = json.loads(await socket.receive_text())
                try:
                    await socket.send_text(json.dumps(answer(game, message)))
                except RuntimeError as cause:
                    await socket.send_text(json.dumps(failure(str(cause), "EXECUTION_ERROR")))
        free[0] += 1

    return app


def observation(seen: dict[str, Any], reward: float | None, done: bool) -> dict[str, Any]:
    return {"type": "observation", "data": {"observation": seen, "reward": reward, "done": done}}


def failure(message: str, code: str, **more: Any) -> dict[str, Any]:
    return {"type": "error", "data": {"message": message, "code": code, **more}}


@pytest.fixture(params=[real_app, fake_app], ids=["openenv-core", "contract"])
def serving(request: pytest.FixtureRequest) -> Callable[..., Any]:
    @contextlib.asynccontextmanager
    async def start(*, has_tools: bool = False, max_sessions: int = 4) -> AsyncIterator[str]:
        async with serving_app(request.param(has_tools=has_tools, max_sessions=max_sessions)) as url:
            yield url

    return start


def calling(name: str, **arguments: Any) -> Action:
    return Action(turn=0, text="", content="", tool_calls=(ToolCall(name, arguments),))


async def test_an_action_of_the_server_is_a_tool_with_its_schema(serving: Callable[..., Any]) -> None:
    async with serving() as url:
        env = make_env(ROW, url=url)
        assert [message.content for message in await env.start()] == ["Guess.\n\na number below 10"]
        (tool,) = env.tools
        function = tool.schema["function"]
        assert (tool.name, function["description"]) == ("act", "Guesses a number.")
        assert list(function["parameters"]["properties"]) == ["number"]
        seen = await env.step(calling("act", number=3))
        assert (seen.messages[0].content, seen.stop) == ("wrong", None)
        bad = await env.step(calling("act", number="three"))
        assert bad.messages[0].error_kind == "wrong_arguments" and "valid integer" in bad.messages[0].content
        raised = await env.step(calling("act", number=100))
        assert raised.messages[0].content == "Error: the display has two digits"
        last = await env.step(calling("act", number=7))
        assert (last.messages[0].content, last.stop) == ("right", StopReason.ENV_DONE)
        reward = await env.score(OVER)
        assert (reward.outcome, reward.info, reward.details["state"]["step_count"]) == (1.0, {"env_return": 1.0}, 2)
        await env.close()


async def test_tools_of_the_server_are_tools_of_the_policy(serving: Callable[..., Any]) -> None:
    async with serving(has_tools=True) as url:
        env = make_env(ROW, url=url)
        assert (await env.start())[0].content.startswith("Guess.")
        (tool,) = env.tools
        assert (
            tool.name == "guess" and tool.schema["function"]["parameters"]["properties"]["number"]["type"] == "integer"
        )
        assert (await env.step(calling("guess", number=3))).messages[0].content == "wrong"
        bad = (await env.step(calling("guess", number="three"))).messages[0]
        assert bad.is_error and "integer" in bad.content
        last = await env.step(calling("guess", number=7))
        assert (last.messages[0].content, last.stop) == ("right", StopReason.ENV_DONE)
        assert (await env.score(OVER)).outcome == 1.0
        await env.close()


async def test_a_full_server_is_waited_for_and_its_session_ends_with_the_connection(
    serving: Callable[..., Any],
) -> None:
    async with serving(max_sessions=1) as url:
        first, second = make_env(ROW, url=url), make_env(ROW, url=url)
        await first.start()
        with pytest.raises(EnvBusyError, match="no free session"):
            await make_env(ROW, url=url, wait_s=0.1).start()
        waiting = asyncio.ensure_future(second.start())
        await first.close()
        assert (await waiting)[0].content.endswith("below 10")
        await second.close()


async def test_a_server_that_ends_is_a_failure_of_the_environment_and_no_reward(serving: Callable[..., Any]) -> None:
    async with serving() as url:
        env = make_env(ROW, url=url)
        await env.start()
    with pytest.raises(EnvUnavailableError):
        await env.step(calling("act", number=3))
    await env.close()
    with pytest.raises(EnvUnavailableError, match="cannot be reached"):
        await make_env(ROW, url=url, wait_s=0.1).start()


async def test_an_answer_that_came_too_late_is_not_taken_for_the_next_one(serving: Callable[..., Any]) -> None:
    async with serving() as url:
        env = make_env(ROW, url=url)
        await env.start()
        late = asyncio.ensure_future(env.act("act", {"number": 3}))
        await asyncio.sleep(0)
        while not env._connection._turn.locked():  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        assert (await env.act("act", {"number": 7})).content == "right"
        await env.close()


def test_outcomes_are_full_success_only_and_partial_returns_may_shape() -> None:
    env = make_env(ROW, url="ws://h", reward_of="max", full_reward=2.0, partial_weight=0.5)
    for reward in (None, 1, 0.5):
        env._rewards.add(reward)
    found = env._rewards.reward()
    assert (found.outcome, found.parts, found.info) == (0.0, {"partial": 0.25}, {"env_return": 1.0})
    env._rewards.add(2)
    assert (env._rewards.reward().outcome, env._rewards.reward().parts) == (1.0, {})
    with pytest.raises(EnvError, match="numbers"):
        env._rewards.add("much")


def test_rows_of_the_splits_differ_and_wrong_options_are_refused() -> None:
    seeds = {
        split: {row.extra["reset"]["seed"] for row in make_rows(split=split, count=50, seed=3)}
        for split in ("train", "test")
    }
    assert [len(found) for found in seeds.values()] == [50, 50] and not seeds["train"] & seeds["test"]
    with pytest.raises(ConfigError, match="VERL_AGENTIC_OPENENV_URL"):
        make_env(ROW, url="localhost:80")
    with pytest.raises(ConfigError, match="full_rewards"):
        make_env(ROW, url="ws://h", full_rewards=1.0)
    with pytest.raises(ConfigError, match="split"):
        make_rows(split="dev", count=1, seed=0)
