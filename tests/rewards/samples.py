"""Samples for tests of reward components, written in one line."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from verl_agentic.base.types import Message, Reward, StopReason
from verl_agentic.graders.stored_samples import StoredSample
from verl_agentic.log.reader import write_run
from verl_agentic.log.run_files import EVALUATION
from verl_agentic.rewards.component import ComponentType, Graded
from verl_agentic.rewards.sample import Call, Sample, Turn
from verl_agentic.rewards.sample_row import to_columns


def call(name: str = "search", *, error_kind: str | None = None, is_error: bool = False, **arguments: Any) -> Call:
    """Returns a call that went well, or one that failed (`is_error`) or was never carried out (`error_kind`)."""
    failed = is_error or error_kind is not None
    return Call(
        name=name,
        arguments=arguments,
        result="failed" if failed else "ok",
        is_error=failed,
        error_kind=error_kind,
    )


def turn(
    text: str = "",
    *calls: Call,
    index: int = 0,
    content: str | None = None,
    observations: Sequence[str] | None = None,
    num_tokens: int | None = None,
    **fields: Any,
) -> Turn:
    """Returns a turn; its content is its text, its observations the results of its calls, one token a word unless told
    otherwise."""
    return Turn(
        index=index,
        text=text,
        content=text if content is None else content,
        calls=calls,
        observations=tuple(one.result or "" for one in calls) if observations is None else tuple(observations),
        num_tokens=len(text.split()) if num_tokens is None else num_tokens,
        **fields,
    )


def sample(
    turns: str | Sequence[str | Turn] = (),
    *,
    ground_truth: Any = None,
    final_answer: str | None = None,
    prompt: str | Sequence[Message] = "question",
    stop_reason: StopReason = StopReason.ANSWERED,
    outcome: float | None = None,
    parts: Mapping[str, float] | None = None,
    info: Mapping[str, float] | None = None,
    extra: Mapping[str, Any] | None = None,
    num_tokens: Sequence[int] | None = None,
    id: str = "sample",
    data_source: str = "",
) -> Sample:
    """Returns an episode; turns are numbered in the order given.

    Args:
        turns: each a text, or what `turn` returns; a text alone is one turn.
        ground_truth: of the row.
        final_answer: by default the content of the last turn.
        prompt: a text is one user message.
        stop_reason: why it ended.
        outcome: what the environment said; None when it said nothing.
        parts: the environment's shaping; needs `outcome`.
        info: numbers of the environment; needs `outcome`.
        extra: the row's `extra_info`.
        num_tokens: tokens that the policy sampled in each turn; by default one a word.
        id: names it in errors.
        data_source: of the row.
    """
    listed = [turn(one) if isinstance(one, str) else one for one in ([turns] if isinstance(turns, str) else turns)]
    counts = [one.num_tokens for one in listed] if num_tokens is None else num_tokens
    numbered = tuple(
        replace(one, index=index, num_tokens=count)
        for index, (one, count) in enumerate(zip(listed, counts, strict=True))
    )
    return Sample(
        id=id,
        prompt=(Message("user", prompt),) if isinstance(prompt, str) else tuple(prompt),
        turns=numbered,
        final_answer=(numbered[-1].content if numbered else "") if final_answer is None else final_answer,
        stop_reason=stop_reason,
        ground_truth=ground_truth,
        data_source=data_source,
        extra=dict(extra or {}),
        env=None if outcome is None else Reward(outcome, dict(parts or {}), dict(info or {})),
    )


def graded(component: ComponentType, subject: Sample, **options: Any) -> Graded:
    """Returns a component's verdict on a sample, checked against its range."""
    chosen = component.make(options)
    return chosen.checked(chosen(subject))


def value(component: ComponentType, subject: Sample, **options: Any) -> float | None:
    """Returns the value of `graded`; None is an abstention."""
    return graded(component, subject, **options).value


def group_values(component: ComponentType, group: Sequence[Sample], **options: Any) -> list[float | None]:
    """Returns a group component's values, checked against its range."""
    chosen = component.make(options)
    verdicts = chosen(group)
    if inspect.isawaitable(verdicts):
        verdicts = asyncio.run(_awaited(verdicts))
    return [chosen.checked(verdict).value for verdict in verdicts]


async def _awaited(verdicts: Awaitable[Any]) -> Any:
    return await verdicts


def write_evaluation(folder: Path, *stored: StoredSample) -> None:
    """Writes the log of an evaluation with these samples."""
    write_run(folder, trajectories=logged(*stored))
    (folder / EVALUATION).write_text("{}")


def logged(*stored: StoredSample) -> list[dict[str, Any]]:
    """Returns records of a run's log, as a training writes them."""
    return [
        {
            "uid": one.group,
            "session": one.session,
            "step": one.step,
            "split": one.split,
            "place": "last",
            "role": "policy",
            "score": one.score,
            **to_columns(one.sample),
        }
        for one in stored
    ]
