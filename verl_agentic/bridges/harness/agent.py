"""Agents: programs that use the policy through a gateway."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Protocol

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import EnvError
from verl_agentic.bridges.harness.dialects.wire import MODEL

MAX_OUTPUT_BYTES = 1 << 20
"""Of a program's result; the end is kept."""
SHOWN_CHARS = 500
SESSION_VARIABLE = "VERL_AGENTIC_SESSION"
_TEMPORARY_FAILURE = 75
"""Exit code by which a program reports that infrastructure failed (EX_TEMPFAIL of sysexits.h)."""


@dataclass(frozen=True, kw_only=True)
class PolicyEndpoint:
    """The policy, as an agent reaches it in one episode."""

    url: str
    """Base URL of Anthropic's clients."""
    api_key: str
    model: str = MODEL

    @property
    def base_url(self) -> str:
        """Base URL of OpenAI's clients."""
        return f"{self.url}/v1"

    def variables(self) -> dict[str, str]:
        """Returns environment variables that clients read."""
        return {
            "OPENAI_BASE_URL": self.base_url,
            "OPENAI_API_BASE": self.base_url,
            "OPENAI_API_KEY": self.api_key,
            "OPENAI_MODEL": self.model,
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": self.api_key,
            "ANTHROPIC_MODEL": self.model,
            SESSION_VARIABLE: self.api_key,
        }


class AgentFailedError(Exception):
    """An agent ended without a result. Never leaves this package."""


class Agent(Protocol):
    """Starts an agent for one episode."""

    async def __call__(self, row: EnvRow, endpoint: PolicyEndpoint) -> Any:
        """Runs the agent with a visible row to its end and returns its result. Cancelling the call ends the agent.

        Raises:
            EnvError: infrastructure failed.
            Exception: the agent failed.
        """
        ...


def visible_row(row: EnvRow, extra_keys: Collection[str]) -> EnvRow:
    """Returns what an agent may know of a row: the prompt and named keys of `extra`, which may hold solutions."""
    return replace(row, ground_truth=None, extra={key: row.extra[key] for key in extra_keys if key in row.extra})


def task_of(row: EnvRow) -> dict[str, Any]:
    """Returns the task of a visible row as JSON: `prompt` and `extra_info`."""
    return {"prompt": [message.to_dict() for message in row.prompt], "extra_info": dict(row.extra)}


def check_exit(code: int, *, error: str) -> None:
    """Checks the exit code of a program.

    Raises:
        EnvError: the program reports that infrastructure failed.
        AgentFailedError: the program failed.
    """
    excerpt = error[-SHOWN_CHARS:]
    if code == _TEMPORARY_FAILURE:
        raise EnvError(f"the agent reports failed infrastructure (exit code {code}): {excerpt}")
    if code:
        raise AgentFailedError(f"the agent ended with exit code {code}: {excerpt}")
