"""The tool `delegate`: gives a part of the task to a copy of the policy with an empty context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from verl_agentic.base.env import SUB_AGENT, SubAgentRunner
from verl_agentic.base.errors import AgenticError, ConfigError, DataError, EnvError
from verl_agentic.base.types import Message, Tool, ToolResult

DESCRIPTION = (
    "Gives a part of the work to a helper, who knows nothing but what you write, and returns the helper's answer."
)
RESERVED_ROLES = ("all", "agent", "sub_agents")
"""Names of `agentic.credit.roles` that are not roles of sub-agents."""


class NoAnswerError(AgenticError, RuntimeError):
    """A sub-agent ended without an answer; the message gives the reason to the policy."""


class DelegateTool:
    """Passes a task to a sub-agent and returns its answer."""

    def __init__(
        self,
        tools: Sequence[Tool] = (),
        *,
        name: str = "delegate",
        agent: str = SUB_AGENT,
        max_turns: int = 4,
        max_calls: int | None = None,
        instructions: str = "",
        description: str = DESCRIPTION,
        timeout_s: float = 300.0,
    ) -> None:
        """Makes the tool.

        Args:
            tools: of the sub-agents.
            name: of the tool; an environment with several roles has a tool for each.
            agent: role of the sub-agents, which their training rows carry.
            max_turns: of a sub-agent.
            max_calls: of one turn of a sub-agent; further calls get an error. None: the limit of the episode.
            instructions: system message of the sub-agents.
            description: of the tool, for the policy.
            timeout_s: deadline of a sub-agent's work, in seconds.

        Raises:
            ConfigError: a sub-agent could delegate, or has no turn or no call.
        """
        nested = [tool.name for tool in tools if isinstance(tool, DelegateTool)]
        if nested:
            raise ConfigError(f"a sub-agent cannot delegate, got the tool {nested[0]!r} among its tools; remove it")
        if max_turns < 1:
            raise ConfigError(f"max_turns of a sub-agent must be at least 1, got {max_turns!r}")
        if max_calls is not None and max_calls < 1:
            raise ConfigError(f"max_calls of a sub-agent must be at least 1, got {max_calls!r}")
        if not agent or agent in RESERVED_ROLES:
            raise ConfigError(f"agent must name a role of its own, got {agent!r}; {RESERVED_ROLES} have a meaning")
        self.name, self.timeout_s = name, timeout_s
        self._tools, self._agent = tools, agent
        self._max_turns, self._max_calls = max_turns, max_calls
        self._description = description
        self._system = (Message("system", instructions),) if instructions else ()
        self._run: SubAgentRunner | None = None

    def use(self, run: SubAgentRunner) -> None:
        """Sets the runner of sub-agents of this episode."""
        self._run = run

    @property
    def schema(self) -> Mapping[str, Any]:
        """The OpenAI function schema: one required string, `task`."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self._description,
                "parameters": {
                    "type": "object",
                    "properties": {"task": {"type": "string", "description": "The whole task."}},
                    "required": ["task"],
                },
            },
        }

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Runs the sub-agent to its end."""
        task = arguments.get("task")
        if not isinstance(task, str) or not task.strip():
            return ToolResult(
                f"Error: the argument task must be a text, got {task!r}", is_error=True, error_kind="wrong_arguments"
            )
        if self._run is None:
            raise EnvError("delegate needs a loop that runs sub-agents, got none; use run_episode")
        prompt = (*self._system, Message("user", task, quoted=task))
        try:
            answer = await self._run(
                prompt, tools=self._tools, max_turns=self._max_turns, max_calls=self._max_calls, agent=self._agent
            )
            if not answer.strip():
                raise NoAnswerError("it ended without one")
            return ToolResult(answer)
        except NoAnswerError as cause:
            return ToolResult(f"Error: the helper gave no answer: {cause}", is_error=True, error_kind="no_answer")
        except DataError as cause:  # the policy wrote the task, so the row is not void
            return ToolResult(f"Error: nobody can take this task: {cause}", is_error=True, error_kind="wrong_arguments")
