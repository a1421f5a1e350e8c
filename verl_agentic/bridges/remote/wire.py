"""The wire between a trainer and an environment server: calls as JSON, answers as JSON lines.

    POST /v1/calls   {"calls": [CALL, ...]} -> one line {"call": index, "result": ...} or {"call": index, "error": ...,
                     "detail": ...} per call, in the order in which they end
    POST /v1/renew   {"sessions": [ID, ...]} -> {"lease_s": ...}; renews their leases
    GET  /health     load of the server; needs no token

A CALL is `{"op", "session", "number", "data"}`. The client chooses the session's id and numbers its calls, so that a
repeated call joins the first one. `start`, `step`, `score`, `guidance` and `close` belong to a session; `select`,
`rows`, `gold` and `describe` to the environment's package.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import Enum
from typing import Any

from verl_agentic.base import errors
from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import AgenticError, DataError, EnvError
from verl_agentic.base.types import Action, Message, Observation, Reward, StopReason, ToolCall

SERVICE = "verl_agentic environment"
CALLS, RENEW, HEALTH = "/v1/calls", "/v1/renew", "/health"


def dumps(value: Any) -> bytes:
    """Returns JSON of plain values and of the types below; lone surrogates of a policy's text survive it."""
    return json.dumps(value, default=_encode_value, separators=(",", ":")).encode()


def _encode_value(value: Any) -> Any:
    """Returns a value in types that JSON has."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        return {name: part for name, part in vars(value).items() if not name.startswith("_")}
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):  # a number or an array of NumPy
        return value.tolist()
    raise DataError(f"only JSON values travel to and from a remote environment, got {value!r}; convert it")


def to_row(data: Mapping[str, Any]) -> EnvRow:
    return EnvRow(**{**data, "prompt": to_messages(data["prompt"])})


def to_messages(data: list[Any]) -> tuple[Message, ...]:
    return tuple(Message(**{**message, "tool_calls": _to_calls(message)}) for message in data)


def to_action(data: Mapping[str, Any]) -> Action:
    return Action(**{**data, "tool_calls": _to_calls(data)})


def to_observation(data: Mapping[str, Any]) -> Observation:
    stop = None if data["stop"] is None else StopReason(data["stop"])
    return Observation(**{**data, "messages": to_messages(data["messages"]), "stop": stop})


def to_transcript(data: Mapping[str, Any]) -> Transcript:
    return Transcript(
        messages=to_messages(data["messages"]),
        actions=tuple(map(to_action, data["actions"])),
        stop_reason=StopReason(data["stop_reason"]),
    )


def to_reward(data: Mapping[str, Any]) -> Reward:
    return Reward(**data)


def _to_calls(data: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(**call) for call in data["tool_calls"])


def failure_of(error: AgenticError) -> dict[str, Any]:
    """Returns the answer for an error. One that this policy may have caused stays one at the other end."""
    kind = type(error)
    if not hasattr(errors, kind.__name__) and isinstance(error, DataError):
        kind = DataError
    return {"error": kind.__name__, "detail": str(error)}


def error_of(answer: Mapping[str, Any]) -> AgenticError:
    """Returns the error of an answer, of the same class; an EnvError if this version has no such class."""
    kind = getattr(errors, str(answer["error"]), None)
    if not isinstance(kind, type) or not issubclass(kind, AgenticError):
        kind = EnvError
    return kind(str(answer.get("detail")))
