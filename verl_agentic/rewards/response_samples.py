"""Samples of episodes that other agent loops played: from tokens and the mask of what the policy sampled, or from text.

Only sampled tokens become the policy's text. What lies between them (tool output, chat markup) is an observation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from verl_agentic.base.text.reasoning import outside_reasoning
from verl_agentic.base.types import Message, StopReason
from verl_agentic.rewards.sample import Call, Sample, Turn
from verl_agentic.rewards.turns import without_end_tokens

Decode = Callable[[Sequence[int]], str]
_ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, kw_only=True)
class ResponseSpan:
    """Adjoining tokens of a response."""

    is_model: bool
    """Whether the policy sampled them."""
    start: int
    end: int
    turn: int
    """The turn that they belong to: an observation belongs to the turn before it."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """Data of an episode from its dataset row and from the run."""

    id: str = ""
    prompt: tuple[Message, ...] = ()
    ground_truth: Any = None
    data_source: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    max_tokens: int = 0
    """Budget of the response; a response that fills it was cut off. 0 for none."""


def to_spans(response_mask: Sequence[int]) -> list[ResponseSpan]:
    """Returns the spans of a response, in order.

    Args:
        response_mask: `[R]` 1 on tokens that the policy sampled.
    """
    spans: list[ResponseSpan] = []
    start, turn = 0, -1
    for is_model, tokens in groupby(map(bool, response_mask)):
        turn = max(0, turn + is_model)
        end = start + len(list(tokens))
        spans.append(ResponseSpan(is_model=is_model, start=start, end=end, turn=turn))
        start = end
    return spans


def sample_of_tokens(
    response_ids: Sequence[int],
    response_mask: Sequence[int],
    *,
    decode: Decode,
    task: Task,
    log_probs: Sequence[float] | None = None,
    calls: Mapping[int, tuple[str, Sequence[tuple[str, Mapping[str, Any]]]]] | None = None,
) -> Sample:
    """Returns the sample of a response.

    The final answer is the last turn without its calls and reasoning; empty where that turn calls a tool or was
    answered. Each call of a turn has all that the turn was answered as its result: which part answers which call is
    not known. Times and failures of tools are not known either.

    Args:
        response_ids: `[R]` tokens, without padding.
        response_mask: `[R]` 1 on tokens that the policy sampled.
        decode: tokens -> text, special tokens included.
        task: what is known beside the response.
        log_probs: `[R]` of the tokens.
        calls: turn -> its text without calls, and name and arguments of each call; for turns that call tools.
    """
    turns: dict[int, Turn] = {}
    for span in to_spans(response_mask):
        text = decode(response_ids[span.start : span.end])
        if span.is_model:
            content, turn_calls = (calls or {}).get(span.turn, (text, ()))
            sampled = list(log_probs[span.start : span.end]) if log_probs else []
            turns[span.turn] = Turn(
                index=span.turn,
                text=text,
                content=without_end_tokens(content),
                calls=tuple(Call(name=name, arguments=arguments) for name, arguments in turn_calls),
                num_tokens=span.end - span.start,
                mean_log_prob=sum(sampled) / len(sampled) if sampled else None,
            )
        elif span.turn in turns and (observation := without_end_tokens(text)):
            turns[span.turn] = _add_observation(turns[span.turn], observation)
    ordered = tuple(turns.values())
    return _make_sample(task, ordered, is_cut=0 < task.max_tokens <= len(response_ids))


def sample_of_text(text: str, *, task: Task) -> Sample:
    """Returns the sample of an episode of one turn, all of whose response the policy wrote."""
    turn = Turn(index=0, text=text, content=without_end_tokens(text), num_tokens=len(text.split()))
    return _make_sample(task, (turn,), is_cut=False)


def to_messages(prompt: Any) -> tuple[Message, ...]:
    """Returns the messages of a row's prompt; of multimodal ones the text parts."""
    messages = []
    for message in prompt if prompt is not None else ():
        content = message.get("content") or ""
        if not isinstance(content, str):
            content = "\n".join(part["text"] for part in content if isinstance(part, Mapping) and "text" in part)
        role = message.get("role")
        messages.append(Message(role=role if role in _ROLES else "user", content=content))
    return tuple(messages)


def _add_observation(turn: Turn, observation: str) -> Turn:
    calls = tuple(Call(name=call.name, arguments=call.arguments, result=observation) for call in turn.calls)
    return Turn(**{**vars(turn), "calls": calls, "observations": (*turn.observations, observation)})


def _make_sample(task: Task, turns: tuple[Turn, ...], *, is_cut: bool) -> Sample:
    last = turns[-1] if turns else None
    is_answer = last is not None and not last.calls and not last.observations
    stop_reason = StopReason.ANSWERED if is_answer else StopReason.MAX_TURNS
    return Sample(
        id=task.id,
        prompt=task.prompt,
        turns=turns,
        final_answer=outside_reasoning(last.content) if last is not None and is_answer else "",
        stop_reason=StopReason.MAX_TOKENS if is_cut else stop_reason,
        ground_truth=task.ground_truth,
        data_source=task.data_source,
        extra=task.extra,
    )
