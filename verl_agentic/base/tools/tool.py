"""The interface of tools: a JSON schema for the policy, and a coroutine that answers a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class ToolResult:
    """The result of a tool call."""

    content: str
    is_error: bool = False
    """Whether the call failed; `content` has the reason for the policy."""
    error_kind: str | None = None
    """One of `types.CALL_ERRORS`, if the call was not executed."""
    error_place: str = field(default="", repr=False, compare=False)
    """Place in the user's code where the tool raised an exception; the policy does not see it."""


class Tool(Protocol):
    """A tool of the policy."""

    @property
    def name(self) -> str:
        """The name in calls."""
        ...

    @property
    def schema(self) -> Mapping[str, Any]:
        """The OpenAI function schema (`{"type": "function", "function": {...}}`), given to the chat template."""
        ...

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Answers one call. Wrong arguments are a result with `is_error`.

        An exception that may depend on the arguments also becomes such a result: the policy must not be able to void
        its episode. Raise an `EnvError` for failures that the policy did not cause. `errors.is_infrastructure` defines
        which other exceptions void the episode.
        """
        ...
