"""An episode as reward components see it: structured by turns, never one flat string."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verl_agentic.base.errors import DataError
from verl_agentic.base.types import Action, Message, Reward, StopReason

_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Call:
    """One tool call of the policy, and its result."""

    name: str
    arguments: Mapping[str, Any]
    result: str | None = None
    """The tool's output; None if the episode ended before. Never text of the policy."""
    is_error: bool = False
    """Whether the call could not be read, or the tool failed."""
    error_kind: str | None = None
    """One of `types.CALL_ERRORS` if the call was not carried out."""
    elapsed_s: float = 0.0
    """Duration of the call, in seconds."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One turn of the policy, and its observations."""

    index: int
    text: str
    """All sampled text of this turn, including calls and special tokens."""
    content: str
    """The text outside tool calls."""
    calls: tuple[Call, ...] = ()
    observations: tuple[str, ...] = ()
    """Observations in order: tool outputs, messages of a user or of the framework."""
    num_tokens: int = 0
    """Number of sampled tokens of this turn."""
    mean_log_prob: float | None = None
    """Mean log-prob of those tokens, or None."""
    reward: float = 0.0
    """The environment's reward for this turn."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One finished episode for scoring."""

    id: str
    """Names the episode in errors and logs."""
    prompt: tuple[Message, ...]
    turns: tuple[Turn, ...]
    final_answer: str
    """The policy's final answer, or empty."""
    stop_reason: StopReason
    ground_truth: Any = None
    data_source: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """The row's `extra_info`."""
    env: Reward | None = None
    """The environment's reward; None if it did not score."""

    @property
    def text(self) -> str:
        """The policy's text, with a line break between turns, without tool output."""
        return "\n".join(turn.text for turn in self.turns)

    @property
    def calls(self) -> tuple[Call, ...]:
        """All calls of the episode, in order."""
        return tuple(call for turn in self.turns for call in turn.calls)

    @property
    def num_model_tokens(self) -> int:
        """Number of sampled tokens."""
        return sum(turn.num_tokens for turn in self.turns)

    def to_dict(self) -> dict[str, Any]:
        """Returns the sample as JSON; `from_dict` takes it back."""
        return {
            "version": _VERSION,
            "id": self.id,
            "prompt": [message.to_dict() for message in self.prompt],
            "turns": [_turn_to_dict(turn) for turn in self.turns],
            "final_answer": self.final_answer,
            "stop_reason": self.stop_reason.value,
            "ground_truth": self.ground_truth,
            "data_source": self.data_source,
            "extra": dict(self.extra),
            "env": None if self.env is None else _reward_to_dict(self.env),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Sample:
        """Returns the sample of `to_dict`. Raises DataError if the version differs, or a field is missing or wrong."""
        if record.get("version") != _VERSION:
            raise DataError(f"a stored sample must have version {_VERSION}, got {record.get('version')!r}; store again")
        try:
            return cls(
                id=record["id"],
                prompt=tuple(Message.from_dict(message) for message in record["prompt"]),
                turns=tuple(_turn_from_dict(turn) for turn in record["turns"]),
                final_answer=record["final_answer"],
                stop_reason=StopReason(record["stop_reason"]),
                ground_truth=record["ground_truth"],
                data_source=record["data_source"],
                extra=record["extra"],
                env=None if record["env"] is None else Reward(**record["env"]),
            )
        except (KeyError, TypeError, ValueError) as cause:
            raise DataError(f"not a stored sample, got {type(cause).__name__}: {cause}; store it anew") from cause


def _reward_to_dict(reward: Reward) -> dict[str, Any]:
    details = {"details": dict(reward.details)} if reward.details else {}
    return {"outcome": reward.outcome, "parts": dict(reward.parts), "info": dict(reward.info), **details}


def to_turns(
    messages: Sequence[Message],
    actions: Sequence[Action],
    *,
    num_tokens: Mapping[int, int] | None = None,
    mean_log_probs: Mapping[int, float] | None = None,
    rewards: Mapping[int, float] | None = None,
) -> tuple[Turn, ...]:
    """Returns the turns of a conversation.

    Args:
        messages: the conversation after the prompt: each action's message, followed by its observations. Other
            assistant messages (summaries) are left out.
        actions: the policy's actions, in order.
        num_tokens: turn -> number of sampled tokens.
        mean_log_probs: turn -> mean log-prob of those.
        rewards: turn -> the environment's reward.
    """
    answers = _group_observations(messages, actions)
    return tuple(
        Turn(
            index=action.turn,
            text=action.text,
            content=action.content,
            calls=tuple(_iter_calls(action, answered)),
            observations=tuple(message.content for message in answered),
            num_tokens=(num_tokens or {}).get(action.turn, 0),
            mean_log_prob=(mean_log_probs or {}).get(action.turn),
            reward=(rewards or {}).get(action.turn, 0.0),
        )
        for action, answered in zip(actions, answers, strict=True)
    )


def _group_observations(messages: Sequence[Message], actions: Sequence[Action]) -> list[list[Message]]:
    """Returns the observations of each action."""
    answers: list[list[Message]] = []
    for message in messages:
        if message.role != "assistant":
            if answers:
                answers[-1].append(message)
        elif len(answers) < len(actions) and message == actions[len(answers)].to_message():
            answers.append([])
    assert len(answers) == len(actions), f"{len(actions)} actions, of which the conversation has {len(answers)}"
    return answers


def _iter_calls(action: Action, answers: Sequence[Message]) -> Iterator[Call]:
    tool_answers = [message for message in answers if message.role == "tool"]
    for index, call in enumerate(action.tool_calls):
        answer = tool_answers[index] if index < len(tool_answers) else None
        yield Call(
            name=call.name,
            arguments=call.arguments,
            result=None if answer is None else answer.content,
            is_error=call.error is not None or (answer is not None and answer.is_error),
            error_kind=call.error_kind or (answer.error_kind if answer is not None else None),
            elapsed_s=0.0 if answer is None else answer.elapsed_s,
        )


def _turn_to_dict(turn: Turn) -> dict[str, Any]:
    record = dict(vars(turn))
    return record | {"calls": [dict(vars(c)) for c in turn.calls], "observations": list(turn.observations)}


def _turn_from_dict(record: Mapping[str, Any]) -> Turn:
    calls = tuple(Call(**call) for call in record["calls"])
    return Turn(**{**record, "calls": calls, "observations": tuple(record["observations"])})
