"""The environment `mcp`: a chat with the tools of MCP servers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import UNSCORED, Message, Reward, StopReason
from verl_agentic.rewards.answers.short_answers import exact_match, golden_answers_of
from verl_agentic.tools.mcp_tools import McpTools

_DEMO = {"demo": {"command": sys.executable, "args": ["-I", str(Path(__file__).with_name("demo_server.py"))]}}


class McpEnv(ToolEnv):
    """A task for the tools of MCP servers; its answer is compared with `row.ground_truth`, if there is one."""

    def __init__(self, row: EnvRow, tools: McpTools) -> None:
        super().__init__(row, [])
        self._mcp = tools

    async def start(self) -> tuple[Message, ...]:
        """Connects to the servers."""
        self.use_tools(await self._mcp.open())
        return self.row.prompt

    async def score(self, transcript: Transcript) -> Reward:
        """Returns outcome 1 for an exact match, without case, articles and punctuation; leaves rows without an answer
        to a rubric."""
        if not self.row.ground_truth:
            return UNSCORED
        is_answer = transcript.stop_reason is StopReason.ANSWERED
        right = golden_answers_of(self.row.ground_truth)
        return Reward(float(is_answer and exact_match(transcript.final_answer, right)))

    async def close(self) -> None:
        """Ends the servers of this episode."""
        await self._mcp.close()


def make_env(row: EnvRow, *, servers: Mapping[str, Any] | None = None, num_shared: int | None = None) -> McpEnv:
    """Returns the environment of one episode.

    Args:
        row: `ground_truth` has the right answers, or nothing.
        servers: name -> keys of `McpServer`. None: the demo server of the examples.
        num_shared: number of connections to each server that all episodes of a worker share; see `McpTools`. None: 0,
            and 1 for the demo server.

    Raises:
        ConfigError: a key is wrong.
    """
    shared = int(servers is None) if num_shared is None else num_shared
    return McpEnv(row, McpTools(_DEMO if servers is None else servers, num_shared=shared))
