"""The environment `nemo_gym`: an episode with a NeMo-Gym resources server.

Verified against nemo-gym 0.4.0 (`nemo_gym/base_resources_server.py`, `responses_api_agents/simple_agent/app.py`):
`POST /seed_session` with the task sets the session's cookie, `POST /NAME` with the arguments is a call of a tool, and
`POST /verify` with the task and the `response`, an object of OpenAI's Responses API, returns the `reward`. Its agent
calls the tools of a turn one after the other and gives the policy the body of every answer, whatever its status.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import ConfigError, DataError, ScoringError, boundary
from verl_agentic.base.settings import read_settings
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Message, Reward, ToolCall, ToolResult
from verl_agentic.bridges.foreign_episode import RewardConfig, RewardTrack
from verl_agentic.web.http_service import HttpService

URL_VARIABLE = "VERL_AGENTIC_NEMO_GYM_URL"


class GymTool:
    """A tool of the server."""

    def __init__(self, env: NemoGymEnv, spec: Mapping[str, Any]) -> None:
        function = {name: spec[name] for name in ("name", "description", "parameters") if spec.get(name) is not None}
        self.name: str = spec["name"]
        self.schema: Mapping[str, Any] = {"type": "function", "function": function}
        self._env = env

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Calls the tool; an answer that is an HTTP error is an error for the policy."""
        response = await self._env.server.send("POST", f"/{self.name}", **_encode_body(arguments))
        if response.status_code == 200:
            return ToolResult(response.text)
        kind = "wrong_arguments" if response.status_code < 500 else "tool_raised"
        return ToolResult(f"Error: {response.text}", is_error=True, error_kind=kind)


class NemoGymEnv(ToolEnv):
    """The client's half of a task of a NeMo-Gym resources server."""

    def __init__(self, row: EnvRow, *, url: str, rewards: RewardTrack, timeout_s: float) -> None:
        with boundary(DataError, "reading the task of NeMo-Gym"):
            specs = row.ground_truth["responses_create_params"].get("tools") or ()
            tools = [GymTool(self, spec) for spec in specs if spec["type"] == "function"]
        super().__init__(row, tools, max_parallel_calls=1, tool_timeout_s=timeout_s)
        self.server, self._rewards = HttpService(url, name="the NeMo-Gym server", extra="nemo_gym"), rewards

    async def start(self) -> tuple[Message, ...]:
        """Seeds a session; its cookies belong to this episode only."""
        await self.server.ask("POST", "/seed_session", **_encode_body(self.row.ground_truth))
        return self.row.prompt

    async def score(self, transcript: Transcript) -> Reward:
        """Returns the outcome that the server's verifier gives."""
        body = {**self.row.ground_truth, "response": to_response(self.row, transcript)}
        verdict = await self.server.ask("POST", "/verify", error=ScoringError, **_encode_body(body))
        with boundary(ScoringError, "reading the verdict of NeMo-Gym"):
            self._rewards.add(verdict["reward"])
        details = {name: value for name, value in verdict.items() if name not in body}
        return self._rewards.reward(**details)

    async def close(self) -> None:
        """Closes the connections. The protocol has no call that ends a session."""
        await self.server.close()


def _encode_body(body: Mapping[str, Any]) -> dict[str, Any]:
    return {"content": json.dumps(body).encode(), "headers": {"Content-Type": "application/json"}}


def make_env(row: EnvRow, *, url: str = "", timeout_s: float = 60.0, **rewards: Any) -> NemoGymEnv:
    """Returns the environment of one episode.

    Args:
        row: as `make_rows` makes it of a task.
        url: of the resources server; default: that in `VERL_AGENTIC_NEMO_GYM_URL`.
        timeout_s: deadline of one call, in seconds.
        rewards: fields of `RewardConfig`.

    Raises:
        ConfigError: there is no url, or an argument is wrong.
        DataError: the row has no task of NeMo-Gym.
    """
    url = url or os.environ.get(URL_VARIABLE, "")
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"a task of NeMo-Gym needs the url of its server, got {url!r}; set url or {URL_VARIABLE}")
    track = RewardTrack(read_settings(RewardConfig, rewards, section="env_config"))
    return NemoGymEnv(row, url=url, rewards=track, timeout_s=timeout_s)


def to_response(row: EnvRow, transcript: Transcript) -> dict[str, Any]:
    """Returns an episode as an object of OpenAI's Responses API."""
    params = row.ground_truth["responses_create_params"]
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 0,
        "model": "policy",
        "status": "completed",
        "output": _write_items(transcript.messages[len(row.prompt) :]),
        "tools": params.get("tools") or [],
        "tool_choice": params.get("tool_choice") or "auto",
        "parallel_tool_calls": params.get("parallel_tool_calls", True),
    }


def _write_items(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Returns the items of messages: texts, calls and results. Calls that could not be carried out are left out."""
    items: list[dict[str, Any]] = []
    open_calls: list[tuple[ToolCall, str]] = []
    for number, message in enumerate(messages):
        if message.role == "tool":
            call, call_id = open_calls.pop(0)
            if call.error is None:
                items.append({"type": "function_call_output", "call_id": call_id, "output": message.content})
        elif message.role != "assistant":
            items.append({"type": "message", "role": message.role, "content": message.content})
        else:
            open_calls = [
                (call, call.call_id or f"call_{number}_{index}") for index, call in enumerate(message.tool_calls)
            ]
            items += _write_turn(message.content, open_calls, number)
    return items


def _write_turn(content: str, calls: Sequence[tuple[ToolCall, str]], number: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if content:
        text = {"type": "output_text", "text": content, "annotations": []}
        ids = {"id": f"msg_{number}", "status": "completed"}
        items.append({"type": "message", "role": "assistant", "content": [text], **ids})
    for call, call_id in calls:
        if call.error is None:
            arguments = json.dumps(dict(call.arguments))
            items.append({"type": "function_call", "name": call.name, "arguments": arguments, "call_id": call_id})
    return items
