"""What a tool is: a JSON schema that the policy sees, and a coroutine that answers a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class ToolResult:
    """What a tool answers."""

    content: str
    is_error: bool = False
    """True when the call did not do what it was meant to; the policy reads why in `content`."""
    error_kind: str | None = None
    """One of `types.CALL_ERRORS`, when the call was not even carried out."""


class Tool(Protocol):
    """One thing the policy may call."""

    @property
    def name(self) -> str:
        """The name the policy calls it by."""
        ...

    @property
    def schema(self) -> Mapping[str, Any]:
        """The OpenAI function schema (`{"type": "function", "function": {...}}`), given to the chat template."""
        ...

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Answers one call. Wrong arguments are a result with `is_error`.

        An exception that may depend on the arguments is answered as such a result, too: the policy must not be able to
        void its episode. Raise an `EnvError` for what is no doing of the policy; `errors.is_infrastructure` says which
        other exceptions void the episode.
        """
        ...
