"""The environment of a script of verl: its `@function_tool` file and its `BaseTool` classes, as they are.

`+agentic=verl_tools` behind the script's own overrides chooses it, with the tools of the script's keys
`multi_turn.function_tool_path` and `multi_turn.tool_config_path`.
"""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from verl.tools.function_tool import FunctionTool, normalize_function_tool_return
from verl.tools.tool_registry import load_all_tools
from verl.utils.reward_score import default_compute_score

from verl_agentic.base.deadlines import in_thread
from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import UNSCORED, Reward, StopReason, ToolResult


class VerlTool:
    """A tool of verl in one episode (`Tool`)."""

    def __init__(self, tool: Any, kwargs: Mapping[str, Any]) -> None:
        """Wraps a `FunctionTool` or an object of a `BaseTool` class.

        Args:
            tool: of verl.
            kwargs: `extra_info.tools_kwargs` of the row for this tool.
        """
        self._tool, self._kwargs = tool, kwargs
        self.name: str = tool.name
        self.schema: Mapping[str, Any] = tool.tool_schema.model_dump(exclude_unset=True, exclude_none=True)
        self.reward = 0.0
        """Sum of the rewards of all calls."""

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Executes a call as `tool_agent` does: an instance of a `BaseTool` lives for one call."""
        if isinstance(self._tool, FunctionTool):
            response, reward, _ = normalize_function_tool_return(await self._tool.call(dict(arguments)))
        else:
            instance, _ = await self._tool.create(create_kwargs=self._kwargs.get("create_kwargs", {}))
            try:
                agent = SimpleNamespace(request_id=instance, tools_kwargs={self.name: self._kwargs}, extra_fields={})
                response, reward, _ = await self._tool.execute(instance, dict(arguments), agent_data=agent)
            finally:
                await self._tool.release(instance)
        if response.image or response.video:
            raise ConfigError(f"env_agent reads text only, got an image or a video of {self.name!r}; use tool_agent")
        self.reward += reward or 0.0
        return ToolResult(response.text or "")


class VerlToolsEnv(ToolEnv):
    """A conversation with tools of verl, scored as verl scores rows of the `data_source`."""

    async def score(self, transcript: Transcript) -> Reward:
        """Scores the final answer by verl's function for the data source. Text of tools never reaches it.

        A rubric or the script's own `custom_reward_function` scores instead where there is one. Data sources that verl
        does not know need one.
        """
        is_answer = transcript.stop_reason is StopReason.ANSWERED  # a part of an answer is none
        row, answer = self.row, transcript.final_answer if is_answer else ""
        compute = functools.partial(default_compute_score, row.data_source, answer, row.ground_truth, dict(row.extra))
        try:
            result = await in_thread(compute)
        except NotImplementedError:
            return UNSCORED
        rewards = sum(tool.reward for tool in self.tools if isinstance(tool, VerlTool))
        return Reward(float(result["score"] if isinstance(result, dict) else result), info={"tool_reward": rewards})


def make_env(
    row: EnvRow,
    *,
    function_tool_path: str | None = None,
    tool_config_path: str | None = None,
    tool_timeout_s: float = 30.0,
    max_parallel_calls: int = 1,
) -> VerlToolsEnv:
    """Returns the environment of one episode.

    Args:
        row: as for verl's `tool_agent`; `extra_info.tools_kwargs` has the `create_kwargs` of tools.
        function_tool_path: file with functions that are decorated with `@function_tool`.
        tool_config_path: YAML file with the classes, configurations and schemas of tools.
        tool_timeout_s: deadline of one call in seconds.
        max_parallel_calls: calls of a turn that run at the same time.

    Raises:
        ConfigError: no tools are named, or they cannot be loaded.
    """
    kwargs: Mapping[str, Any] = row.extra.get("tools_kwargs") or {}
    tools = [VerlTool(tool, kwargs.get(tool.name) or {}) for tool in _load_tools(tool_config_path, function_tool_path)]
    return VerlToolsEnv(row, tools, tool_timeout_s=tool_timeout_s, max_parallel_calls=max_parallel_calls)


@functools.cache
def _load_tools(config_path: str | None, function_path: str | None) -> tuple[Any, ...]:
    if not (config_path or function_path):
        raise ConfigError(
            "the script names no tools; set actor_rollout_ref.rollout.multi_turn.function_tool_path or tool_config_path"
        )
    with contextlib.redirect_stdout(io.StringIO()):  # a BaseTool prints its schema in every process
        return tuple(load_all_tools(config_path, function_path))
