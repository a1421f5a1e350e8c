"""The environment `openenv`: an episode on an OpenEnv server."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import ConfigError, EnvError, boundary
from verl_agentic.base.settings import read_settings
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Message, Reward, ToolResult
from verl_agentic.bridges.foreign_episode import RewardConfig, RewardTrack, draw_numbers, with_observation
from verl_agentic.bridges.openenv.connection import OpenEnvConnection, RefusedActionError

URL_VARIABLE = "VERL_AGENTIC_OPENENV_URL"
_INSTRUCTION = "Solve the task with the tools."
_ACT = "Acts in the environment and returns what happens."


class ServerTool:
    """An action of the server as a tool of the policy."""

    def __init__(self, env: OpenEnv, name: str, description: str, parameters: Mapping[str, Any]) -> None:
        self.name = name
        function = {"name": name, "description": description, "parameters": parameters}
        self.schema: Mapping[str, Any] = {"type": "function", "function": function}
        self._env = env

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Carries out the action."""
        return await self._env.act(self.name, arguments)


class OpenEnv(ToolEnv):
    """The client's half of an environment on an OpenEnv server."""

    def __init__(
        self, row: EnvRow, *, connection: OpenEnvConnection, rewards: RewardTrack, wait_s: float, timeout_s: float
    ):
        super().__init__(row, [], max_parallel_calls=1, tool_timeout_s=timeout_s)
        self._connection, self._rewards, self._wait_s = connection, rewards, wait_s
        self._has_tools = False

    async def start(self) -> tuple[Message, ...]:
        """Connects, learns the tools, and resets the environment with the row's `reset` arguments."""
        action = await self._connection.action_schema()
        self._has_tools = "tool_name" in action.get("properties", {})
        reset = {"type": "reset", "data": dict(self.row.extra.get("reset", {}))}
        if self._has_tools:
            listing = {"type": "step", "data": {"type": "list_tools"}}
            listed = await self._connection.open(listing, wait_s=self._wait_s)
            data = await self._connection.ask(reset)
        else:
            listed, data = {}, await self._connection.open(reset, wait_s=self._wait_s)
        with boundary(EnvError, "reading the first observation of the OpenEnv server"):
            if self._has_tools:
                specs = listed["observation"]["tools"]
                tools = [ServerTool(self, t["name"], t["description"], t["input_schema"]) for t in specs]
            else:
                tools = [ServerTool(self, "act", action.get("description") or _ACT, _read_parameters(action))]
            if not tools:
                raise EnvError("the OpenEnv server must list its tools, got none; see its log")
            self.use_tools(tools)
            return with_observation(self.row, _render_observation(data["observation"]))

    async def act(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Sends an action; what the server refuses is an error for the policy."""
        if self.is_done:
            return ToolResult("Error: the episode is over", is_error=True, error_kind="invalid_action")
        data = {"type": "call_tool", "tool_name": name, "arguments": dict(arguments)} if self._has_tools else arguments
        try:
            answer = await self._connection.ask({"type": "step", "data": dict(data)})
        except RefusedActionError as cause:
            kind = "wrong_arguments" if cause.code == "VALIDATION_ERROR" else "tool_raised"
            return ToolResult(f"Error: {cause}", is_error=True, error_kind=kind)
        with boundary(EnvError, "reading an observation of the OpenEnv server"):
            self._rewards.add(answer.get("reward"))
            self.is_done = bool(answer.get("done"))
            observation = answer["observation"]
            failed = observation.get("error") if self._has_tools else None
            return ToolResult(_render_observation(observation), is_error=failed is not None)

    async def score(self, transcript: Transcript) -> Reward:
        """Returns the outcome of the rewards so far, with the state of the environment as a detail."""
        return self._rewards.reward(state=await self._connection.ask({"type": "state"}))

    async def close(self) -> None:
        await self._connection.close()


def make_env(
    row: EnvRow, *, url: str | None = None, wait_s: float = 90.0, timeout_s: float = 60.0, **rewards: Any
) -> OpenEnv:
    """Returns the environment of one episode.

    Args:
        row: `extra["reset"]` has the arguments of the environment's `reset`, such as a seed.
        url: of the server; default: that in `VERL_AGENTIC_OPENENV_URL`.
        wait_s: time to get a session, in seconds, if the server is full or cannot be reached.
        timeout_s: deadline of one action, in seconds.
        rewards: fields of `RewardConfig`.

    Raises:
        ConfigError: there is no url, or an argument is wrong.
    """
    url = url or os.environ.get(URL_VARIABLE, "")
    if not url.startswith(("http://", "https://", "ws://", "wss://")):
        raise ConfigError(f"an OpenEnv environment needs the url of a server, got {url!r}; set url or {URL_VARIABLE}")
    track = RewardTrack(read_settings(RewardConfig, rewards, section="env_config"))
    return OpenEnv(row, connection=OpenEnvConnection(url), rewards=track, wait_s=wait_s, timeout_s=timeout_s)


def make_rows(*, split: str, count: int, seed: int, instruction: str = _INSTRUCTION) -> list[EnvRow]:
    """Returns rows that reset the environment with different seeds.

    Args:
        split: `train` or `test`.
        count: number of rows.
        seed: of the choice.
        instruction: the policy's task, before the first observation.
    """
    prompt = (Message("user", instruction),)
    return [
        EnvRow(prompt=prompt, data_source="openenv", extra={"reset": {"seed": number}})
        for number in draw_numbers(split=split, count=count, seed=seed, limit=2**31)
    ]


def _read_parameters(action: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the schema of an action without its metadata, which is none of the policy's business."""
    properties = {name: schema for name, schema in action.get("properties", {}).items() if name != "metadata"}
    return {**action, "properties": properties}


def _render_observation(observation: Mapping[str, Any]) -> str:
    """Returns an observation as text: its only text field, the text of a tool's result, or JSON."""
    fields = {name: value for name, value in observation.items() if value not in (None, "", [], {})}
    if "tool_name" in fields:
        fields.pop("tool_name")
        result = fields.get("result")
        content = result.get("content") if isinstance(result, Mapping) else None
        if "error" in fields:
            return f"Error: {fields['error'].get('message')}"
        if content:
            return "\n".join(str(part.get("text", part)) for part in content)
    values = list(fields.values())
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return json.dumps(fields, ensure_ascii=False)
