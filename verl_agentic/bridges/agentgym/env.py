"""The environment `agentgym`: an episode on an AgentGym server, with one tool, `act`."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from typing import Any

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import ConfigError, DataError, EnvError, boundary
from verl_agentic.base.settings import read_settings
from verl_agentic.base.tools.function_tool import tool
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Action, Message, Observation, Reward, StopReason, ToolResult
from verl_agentic.bridges.agentgym.wires import WIRES, Wire
from verl_agentic.bridges.foreign_episode import RewardConfig, RewardTrack, draw_numbers, with_observation
from verl_agentic.web.http_service import HttpService

URL_VARIABLE = "VERL_AGENTIC_AGENTGYM_URL"
_HAS_NO_CLOSE = frozenset({404, 405})
_LOST = re.compile(r"The id .* is not valid|has been deleted")
"""Errors of a step that are not about its action."""
logger = logging.getLogger(__name__)


class AgentGymEnv(ToolEnv):
    """The client's half of an AgentGym environment."""

    def __init__(self, row: EnvRow, *, url: str, wire: Wire, rewards: RewardTrack, timeout_s: float) -> None:
        super().__init__(row, [tool(timeout_s=timeout_s)(self.act)], max_parallel_calls=1)
        self._server = HttpService(url, name="the AgentGym server", extra="agentgym")
        self._wire, self._rewards = wire, rewards
        self._id: Any = None

    async def start(self) -> tuple[Message, ...]:
        """Creates an environment and resets it to the row's task."""
        answer = await self._post_request("/create", {})
        self._id = answer.get("id") if isinstance(answer, Mapping) else answer
        if self._id is None:
            raise EnvError(f"{self._server.name} must answer create with an id, got {answer!r}; see its log")
        return with_observation(self.row, await self.reset())

    async def reset(self) -> str:
        """Returns the first observation. The same task begins anew, however often it is reset."""
        self.is_done = False
        self._rewards.rewards.clear()
        body = {self._wire.task_key: self.row.extra["task_index"], **self._wire.reset}
        answer = await self._post_request("/reset", self._with_id(body))
        if not isinstance(answer, Mapping):  # WebShop's has no complete observation
            return str(await self._server.ask("GET", "/observation", params={self._wire.id_key: self._id}))
        task = answer.get("task_description")
        return f"{task}\n{_render_observation(answer)}" if task else _render_observation(answer)

    async def act(self, action: str) -> ToolResult:
        """Acts in the environment and returns what happens.

        Args:
            action: one action.
        """
        if self.is_done:
            return ToolResult("Error: the episode is over", is_error=True, error_kind="invalid_action")
        answer = await self._server.ask("POST", "/step", json=self._with_id({"action": action}))
        if "error" in answer and not _LOST.search(str(answer["error"])):
            return ToolResult(f"Error: {answer['error']}", is_error=True, error_kind="tool_raised")
        self._check_answer(answer, "/step")
        with boundary(EnvError, "reading an observation of the AgentGym server"):
            self._rewards.add(answer[self._wire.reward_key])
            self.is_done = bool(answer["done"])
            return ToolResult(_render_observation(answer))

    async def step(self, action: Action) -> Observation:
        """Carries out the calls in order; a turn without a call ends the episode."""
        return await super().step(action) if action.tool_calls else Observation(stop=StopReason.NO_ACTION)

    async def score(self, transcript: Transcript) -> Reward:
        """Returns the outcome of the rewards so far."""
        return self._rewards.reward()

    async def close(self) -> None:
        """Closes the environment on the server, if it has such a call, and the connections."""
        try:
            if self._id is not None:
                response = await self._server.send("POST", "/close", json=self._with_id({}))
                if response.status_code != 200 and response.status_code not in _HAS_NO_CLOSE:
                    raise EnvError(f"got HTTP {response.status_code}: {response.text[:300]}")
        except EnvError as cause:
            logger.warning("an AgentGym environment may be left on its server: %s", cause)
        finally:
            await self._server.close()

    def _with_id(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return {self._wire.id_key: self._id, **body}

    async def _post_request(self, path: str, body: Mapping[str, Any]) -> Any:
        answer = await self._server.ask("POST", path, json=dict(body))
        self._check_answer(answer, path)
        return answer

    def _check_answer(self, answer: Any, path: str) -> None:
        if isinstance(answer, Mapping) and "error" in answer:
            raise EnvError(f"{path} of {self._server.name} failed, got {answer['error']!r}; see its log")


def make_env(
    row: EnvRow, *, url: str | Mapping[str, str] | None = None, timeout_s: float = 60.0, **rewards: Any
) -> AgentGymEnv:
    """Returns the environment of one episode.

    Args:
        row: as `make_rows` makes it: `extra` has `task` and `task_index`.
        url: of the server, or task -> url of its server; default: that in `VERL_AGENTIC_AGENTGYM_URL`.
        timeout_s: deadline of one action, in seconds.
        rewards: fields of `RewardConfig`; the defaults are those of the server's environment.

    Raises:
        ConfigError: there is no url for the task, or an argument is wrong.
        DataError: the row names no task of AgentGym.
    """
    wire = WIRES.get(row.extra.get("task", ""))
    if wire is None or not isinstance(row.extra.get("task_index"), int):
        raise DataError(f"a row must name task and task_index, got {dict(row.extra)}; use one of {list(WIRES)}")
    url = url.get(row.extra["task"]) if isinstance(url, Mapping) else url
    url = url or os.environ.get(URL_VARIABLE, "")
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"AgentGym's {row.extra['task']} needs the url of a server, got {url!r}; set {URL_VARIABLE}")
    options = {"reward_of": wire.reward_of, "full_reward": wire.full_reward, **rewards}
    track = RewardTrack(read_settings(RewardConfig, options, section="env_config"))
    return AgentGymEnv(row, url=url, wire=wire, rewards=track, timeout_s=timeout_s)


def make_rows(*, split: str, count: int, seed: int, task: str | None = None, num_tasks: int = 200) -> list[EnvRow]:
    """Returns rows of different task numbers.

    Args:
        split: `train` or `test`.
        count: number of rows.
        seed: of the choice.
        task: the only kind of server; None: all of them in turn.
        num_tasks: tasks of a server are the numbers below this; the protocol does not tell how many there are.

    Raises:
        ConfigError: an unknown task or split, or too many rows.
    """
    if task is not None and task not in WIRES:
        raise ConfigError(f"unknown task, got {task!r}; use one of {list(WIRES)}")
    names = list(WIRES) if task is None else [task]
    each = -(-count // len(names))
    numbers = {n: draw_numbers(split=split, count=each, seed=seed, limit=num_tasks) for n in names}
    return [
        EnvRow(
            prompt=(Message("user", WIRES[name].instruction),),
            data_source=f"agentgym/{name}",
            extra={"task": name, "task_index": numbers[name][index // len(names)]},
        )
        for index in range(count)
        for name in (names[index % len(names)],)
    ]


def _render_observation(answer: Mapping[str, Any]) -> str:
    """Returns the observation in an answer, which WebShop calls `state`, with the actions if they are apart."""
    text = str(answer["observation"] if "observation" in answer else answer["state"])
    actions = answer.get("available_actions")
    return f"{text}\nAvailable actions: {', '.join(actions)}" if actions else text
