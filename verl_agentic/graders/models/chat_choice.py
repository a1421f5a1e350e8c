"""Reads answers of the chat API: text, thoughts, calls, and why the answer ended.

Reasons of servers: OpenAI and vLLM 0.24 (`stop`, `length`, `tool_calls`, `content_filter`; `abort`, `error`,
`repetition`), OpenRouter (`error`), Anthropic (`end_turn`, `max_tokens`, `refusal`, `model_context_window_exceeded`),
Mistral (`model_length`), TGI (`eos_token`, `stop_sequence`), Gemini (`SAFETY` and others), Zhipu (`sensitive`),
DeepSeek (`insufficient_system_resource`), Cohere (`TIMEOUT`, `ERROR_LIMIT`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Finish = Literal["stop", "length", "context_full", "content_filter", "aborted", "error", "unknown"]
"""Why an answer ended. `stop`: the model ended it. `error`: the server failed in the middle of it."""
_FINISHES: dict[Finish, Sequence[str]] = {
    "stop": (
        "stop",
        "tool_calls",
        "tool_call",
        "malformed_function_call",
        "function_call",
        "tool_use",
        "end_turn",
        "stop_sequence",
        "eos",
        "eos_token",
        "complete",
    ),
    "length": ("length", "max_tokens", "repetition"),
    "context_full": ("model_length", "model_context_window_exceeded", "context_length_exceeded"),
    "content_filter": (
        *("content_filter", "content_filtered", "refusal", "safety", "sensitive", "recitation"),
        *("prohibited_content", "blocklist", "spii", "guardrail_intervened"),
    ),
    "aborted": ("abort", "aborted", "cancelled"),
    "error": ("error", "server_error", "internal_error", "timeout", "insufficient_system_resource", "error_limit"),
}
_FINISH_OF: Mapping[str, Finish] = {name: finish for finish, names in _FINISHES.items() for name in names}
THOUGHTS = ("reasoning_content", "reasoning")
"""Names under which servers return thoughts, and take them back with the conversation."""


@dataclass(frozen=True, kw_only=True)
class ChatChoice:
    """One answer of a model."""

    content: str
    """The text; of a refusal the server's words."""
    calls: Sequence[Any]
    """Tool calls as the server wrote them."""
    thoughts: Mapping[str, str]
    """Thoughts that the server returned apart, by the field's name."""
    finish: Finish
    reason: str
    """The server's word for `finish`."""


def read_choice(answer: Any) -> ChatChoice:
    """Returns the first choice of an answer. Raises ValueError if it has no message."""
    choice = first_choice(answer)
    message = choice.get("message")
    calls = message.get("tool_calls") if isinstance(message, Mapping) else None
    if not isinstance(message, Mapping) or not isinstance(calls, list | None):
        raise ValueError(f"an answer must have a message with content or tool_calls, got {str(answer)[:200]}")
    return ChatChoice(
        content=_text_of(message.get("refusal") if _is_refusal(message) else message.get("content")),
        calls=calls or (),
        thoughts={name: message[name] for name in THOUGHTS if isinstance(message.get(name), str)},
        finish=finish_of(choice),
        reason=str(choice.get("finish_reason")),
    )


def finish_of(choice: Mapping[str, Any]) -> Finish:
    """Returns why a choice ended; `stop` if the server does not say, and `content_filter` if the model refuses."""
    if choice.get("error"):
        return "error"
    if _is_refusal(choice.get("message")):
        return "content_filter"
    reason = choice.get("finish_reason")
    return _FINISH_OF.get(str(reason).lower(), "unknown") if reason else "stop"


def _is_refusal(message: Any) -> bool:
    """Returns whether a message has a refusal in place of content and calls."""
    return (
        isinstance(message, Mapping)
        and bool(message.get("refusal"))
        and not (message.get("content") or message.get("tool_calls"))
    )


def first_choice(answer: Any) -> Mapping[str, Any]:
    """Returns the first choice of an answer; empty if it has none."""
    choices = answer.get("choices") if isinstance(answer, Mapping) else None
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], Mapping) else {}


def error_of(answer: Any) -> Mapping[str, Any]:
    """Returns the error of an answer, wherever a server writes it; empty if there is none.

    An error without fields becomes `{"text": ...}`.
    """
    choice = first_choice(answer)
    if not isinstance(answer, Mapping):
        return {"text": str(answer)}
    errors = [part["error"] for part in (answer, choice) if part.get("error")]
    if not errors:
        return {} if choice else answer
    return errors[0] if isinstance(errors[0], Mapping) else {"text": str(errors[0])}


def parse_answer(response: Any) -> Any:
    """Returns the JSON of a response of httpx, or its text."""
    try:
        return response.json()
    except (ValueError, RecursionError):
        return response.text


def _text_of(content: Any) -> str:
    """Returns the text of a content, whose parts may be apart. Raises ValueError for another form."""
    parts = content if isinstance(content, list) else [content or ""]
    texts = [part.get("text") or "" if isinstance(part, Mapping) else part for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"a message must have text as content, got {str(content)[:200]}")
    return "".join(texts)
