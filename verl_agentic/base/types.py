"""The nouns that every layer shares: messages, tool calls, actions, observations, rewards, stop reasons."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

from verl_agentic.base.errors import DataError, ScoringError

Role = Literal["system", "user", "assistant", "tool"]
_ROLES = ("system", "user", "assistant", "tool")
THOUGHT_KEYS = ("reasoning_content", "reasoning", "thinking")
"""Keys of a turn's thoughts in chat templates and datasets."""


class StopReason(str, Enum):
    """Why an episode ended; exactly one per episode."""

    ANSWERED = "answered"  # the policy gave a final answer
    ENV_DONE = "env_done"  # the environment reached a terminal state
    MAX_TURNS = "max_turns"
    MAX_TOKENS = "max_tokens"  # a response budget (of the turn or of the episode) ran out
    CONTEXT_FULL = "context_full"  # prompt and response fill the model's context
    CONTENT_FILTER = "content_filter"  # a filter of the server, or the model itself, refused the content
    NO_ACTION = "no_action"  # the environment needed an action and the policy gave none
    AGENT_FAILED = "agent_failed"  # the program that uses the policy (bridges.harness) crashed or hung after a turn
    POLICY_FAULT = "policy_fault"  # what the policy wrote, ran or filled broke its episode, or used up a deadline
    TIMEOUT = "timeout"  # still running at a wall-clock deadline: void
    INFRA_ERROR = "infra_error"  # environment or server failed: the trajectory is void
    CANCELLED = "cancelled"  # the server aborted the turn and did not resume it: void


VOID_REASONS = frozenset({StopReason.TIMEOUT, StopReason.INFRA_ERROR, StopReason.CANCELLED})
"""Ends that say nothing about the policy: mask 0, out of the loss and of the group statistics.

A wall-clock deadline measures machines, not policies (whose budgets are turns and tokens), so `timeout` is one of them,
unless code of the policy spent the time (`policy_fault`).
"""


CALL_ERRORS = (
    "malformed_json",
    "not_an_object",
    "wrong_arguments",
    "unknown_tool",
    "in_reasoning",
    "unclosed",
    "empty",
    "too_many",
    "invalid_action",
    "tool_timeout",
    "tool_raised",
    "no_answer",
)
"""Why a call was not carried out, or not to its end, as metrics count it. `invalid_action` is a turn with neither call
nor answer, where the protocol asks for one of them. `tool_raised` is an exception that arguments may have caused, and
`no_answer` a sub-agent that ended without an answer."""


class SegmentKind(str, Enum):
    """Author of a span of the response."""

    MODEL = "model"
    TOOL = "tool"
    USER = "user"
    FRAMEWORK = "framework"  # separators, forced or injected text


class Segment(NamedTuple):
    """A span of `response_ids` with one author."""

    start: int
    """Offset of the first token in `response_ids`."""
    end: int
    """Offset one past the last token."""
    kind: SegmentKind
    turn: int
    """Turn of the model tokens, or the turn whose action this observation answers."""


class ColumnArguments(dict[str, Any]):
    """Arguments that a row has as an object, not as JSON text: Arrow may have filled keys of other rows with None."""


@dataclass(frozen=True)
class ToolCall:
    """One call that the policy asked for."""

    name: str
    arguments: Mapping[str, Any]
    call_id: str = ""
    error: str | None = None
    """Why the call cannot run (malformed JSON, arguments that are no object), for the policy; None when it can."""
    error_kind: str | None = None
    """The error's kind, as metrics count it (`malformed_json`, `unclosed`, ...); set exactly when `error` is."""


@dataclass(frozen=True)
class Message:
    """One chat message with text content."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    name: str = ""
    """Name of the tool that a `tool` message answers for."""
    call_id: str = ""
    is_error: bool = False
    """Whether the tool failed to do what was asked; for scorers, the policy does not see it."""
    error_kind: str | None = None
    """One of `CALL_ERRORS` when the call was not even carried out; for scorers."""
    elapsed_s: float = 0.0
    """Duration of the tool call, in seconds; for scorers."""
    error_place: str = field(default="", repr=False, compare=False)
    """Place in the user's code where the tool raised an exception; for authors, the policy does not see it."""
    quoted: str = field(default="", repr=False, compare=False)
    """The end of `content` that came from the policy, a tool or an environment, such as a summary in the prompt. The
    codec neutralises it as it does a tool's output."""
    reasoning: str = ""
    """Thoughts before `content`, in a turn of a row or of a script, or that a chat server returned apart from the
    content. Chat templates get them. The chat protocol and protocols with tags of reasoning write them; others leave
    them out."""

    def to_dict(self) -> dict[str, Any]:
        """Returns the message in the form that chat templates take."""
        message: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [
                {"id": c.call_id, "type": "function", "function": {"name": c.name, "arguments": dict(c.arguments)}}
                for c in self.tool_calls
            ]
        if self.name:
            message["name"] = self.name
        if self.call_id:
            message["tool_call_id"] = self.call_id
        return message

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> Message:
        """Returns the message of a dataset row. Parts of text are joined by line breaks, as vLLM joins them.

        Raises:
            DataError: unknown role, content that is not text (multimodal content is not supported), thoughts that are
                not text, or a tool call without a name or whose arguments are no object.
        """
        role, content = message.get("role"), _join_parts(message.get("content"))
        thoughts = next(filter(None, map(message.get, THOUGHT_KEYS)), "")
        if role not in _ROLES:
            raise DataError(f"unknown message role, got {role!r}; use one of {_ROLES}")
        calls = tuple(_to_call(call) for call in message.get("tool_calls") or ())
        if content is None and calls:
            content = ""  # how OpenAI's format writes a turn that is nothing but calls
        if not isinstance(content, str):
            raise DataError(
                f"message content must be text, got {type(content).__name__} in a {role!r} message; "
                "multimodal content is not supported: use verl's own tool_agent loop for such rows"
            )
        if not isinstance(thoughts, str):
            raise DataError(f"thoughts of a message must be text, got {type(thoughts).__name__}; convert them to text")
        return cls(
            role=role,
            content=content,
            tool_calls=calls,
            reasoning=thoughts if role == "assistant" else "",
            name=message.get("name") or "",
            call_id=message.get("tool_call_id") or "",
        )


def _join_parts(content: Any) -> Any:
    """Returns the text of a list of text parts; other content as it is."""
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, Mapping) and part.get("type") == "text"]
    strings = [text for text in texts if isinstance(text, str)]
    return "\n".join(strings) if strings and len(strings) == len(parts) else content


def load_arguments(arguments: Any, *, load: Callable[[str], Any] = json.loads) -> Any:
    """Returns the arguments of a call, which clients and servers send as an object or as JSON text of one.

    Raises:
        ValueError, RecursionError: `load` cannot read the text.
    """
    arguments = fill_arguments(arguments)
    return fill_arguments(load(arguments)) if isinstance(arguments, str) else arguments


def fill_arguments(arguments: Any) -> Any:
    """Returns `{}` for null and for blank text, as many write the arguments of a call without any."""
    return {} if arguments is None or (isinstance(arguments, str) and not arguments.strip()) else arguments


def _to_call(call: Mapping[str, Any]) -> ToolCall:
    """Returns a call of a message in OpenAI's form; its arguments may be an object, or JSON text of one."""
    function = call.get("function") if isinstance(call, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    arguments = function.get("arguments") if isinstance(function, Mapping) else None
    if isinstance(arguments, Mapping):
        arguments = ColumnArguments(arguments)
    with contextlib.suppress(ValueError, RecursionError):
        arguments = load_arguments(arguments)
    if not isinstance(name, str) or not name or not isinstance(arguments, Mapping):
        raise DataError(
            f'a tool call must be {{"function": {{"name": ..., "arguments": {{...}}}}}}, got {call!r}; fix the message'
        )
    return ToolCall(name, arguments, call.get("id") or "")


@dataclass(frozen=True)
class Action:
    """A turn of the policy, parsed."""

    turn: int
    text: str
    """The sampled text, decoded without special tokens removed."""
    content: str
    """The text outside tool calls, reasoning included where tags mark it."""
    tool_calls: tuple[ToolCall, ...] = ()
    answer: str | None = None
    """The final answer, where the protocol marks it; None where it is the content of a turn without a call. Read
    `env.Transcript.final_answer`, which leaves out reasoning."""
    reasoning: str = ""
    """Thoughts that a chat server returned apart from the content. A policy's own are part of `content`."""
    counts: Mapping[str, float] = field(default_factory=dict)
    """Counts of the protocol in this turn, such as `repaired_calls`; added up over the episode."""
    num_context_tokens: int = 0
    """Number of tokens that the policy saw before the turn."""
    num_tokens: int = 0
    """Number of tokens of the turn, forced ones included."""
    is_cut: bool = False
    """Whether `TurnLimits.max_tokens` cut the turn."""

    def to_message(self) -> Message:
        """Returns the assistant message of this turn in the chat; always the same object."""
        return self._assistant_message

    @cached_property
    def _assistant_message(self) -> Message:
        return Message("assistant", self.content, tool_calls=self.tool_calls, reasoning=self.reasoning)


@dataclass(frozen=True, kw_only=True)
class TurnLimits:
    """Limits that an environment sets for the next turn of the policy."""

    max_tokens: int | None = None
    """Maximum number of tokens. A turn that it cuts continues the episode. None: no limit beside those of the loop."""
    stop_texts: tuple[str, ...] = ()
    """Texts that end the turn. The tokens up to the first one are kept and trained, later ones are dropped."""
    tool: str = ""
    """Tool that the turn must call: the start of the call is written by the framework and not trained."""


@dataclass(frozen=True, kw_only=True)
class NewRow:
    """A conversation for a new training row. An environment gives it where the policy has not seen the conversation
    before: an earlier part was rewritten, or the tools have changed."""

    messages: tuple[Message, ...]
    """The whole conversation."""
    tools: Sequence[Mapping[str, Any]] = ()
    """Schemas of the tools in the prompt."""
    after: Action | None = None
    """Turn whose row begins with the same messages and tools, up to and with this turn. The tokens of that row are
    used again. None: the whole conversation is encoded."""
    num_shared: int = 0
    """Number of messages up to and with `after`. The messages behind it are not the policy's."""


@dataclass(frozen=True)
class Observation:
    """Messages and reward that the environment returns for an action."""

    messages: tuple[Message, ...] = ()
    reward: float = 0.0
    """Reward of the turn that this observation answers; reaches the last model token of that turn."""
    stop: StopReason | None = None
    """Set when the episode is over."""
    info: Mapping[str, float] = field(default_factory=dict)
    """Numbers to add up over the episode and report as metrics."""
    new_row: NewRow | None = None
    """Conversation that replaces the one so far, for the policy. `messages` are then for scorers only: what is new in
    it."""
    dropped_calls: tuple[str, ...] = ()
    """Ids of calls whose answers leave the context. The conversation continues in a new training row without them; what
    was sampled before keeps the context that the policy saw."""


@dataclass(frozen=True)
class Reward:
    """Reward of a finished episode."""

    outcome: float
    """The raw outcome, before shaping; dynamic sampling filters on it."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Shaping terms by name, already weighted; added to the outcome."""
    info: Mapping[str, float] = field(default_factory=dict)
    """Numbers that say more about the outcome; never added to it."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """JSON values that explain the outcome, such as a patch. Stored with the episode for the viewer and for exports."""
    is_scored: bool = True
    """False when the environment leaves the outcome to a rubric; the numbers then mean nothing."""

    def __post_init__(self) -> None:
        for name, value in {"outcome": self.outcome, **self.parts, **self.info}.items():
            if not math.isfinite(value):
                raise ScoringError(f"reward part {name!r} is not finite, got {value}; fix the scorer")

    @property
    def total(self) -> float:
        """The outcome plus all shaping terms."""
        return self.outcome + sum(self.parts.values())


UNSCORED = Reward(0.0, is_scored=False)
"""Reward that an environment returns to leave the outcome to a rubric."""


@dataclass(frozen=True)
class ToolResult:
    """The result of a tool call."""

    content: str
    is_error: bool = False
    """Whether the call failed; `content` has the reason for the policy."""
    error_kind: str | None = None
    """One of `CALL_ERRORS`, if the call was not executed."""
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
