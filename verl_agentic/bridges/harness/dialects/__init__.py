"""Dialects of the gateway: how a request is read, and how a turn or an error is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from verl_agentic.base.types import Message
from verl_agentic.bridges.harness.dialects import anthropic_messages, chat_completions, openai_responses
from verl_agentic.bridges.harness.dialects.wire import ChatAnswer, ChatAsked, SessionOptions

Stored = Mapping[str, tuple[Message, ...]]
"""Id of an answer -> the conversation up to and with it."""


class Dialect(Protocol):
    """Functions of a module in this folder."""

    def read(self, body: Any, *, options: SessionOptions, stored: Stored) -> ChatAsked:
        """Returns the request. Raises ConfigError or DataError if it cannot be served."""
        ...

    def write(self, answer: ChatAnswer, body: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the body of the answer."""
        ...

    def stream(self, answer: ChatAnswer, body: Mapping[str, Any]) -> str:
        """Returns the answer as server-sent events."""
        ...

    def refuse(self, message: str, *, kind: str) -> dict[str, Any]:
        """Returns the body of an error."""
        ...


DIALECTS: Mapping[str, Dialect] = {
    "chat/completions": chat_completions,
    "responses": openai_responses,
    "messages": anthropic_messages,
}
"""Path below `/v1/` -> its dialect."""
