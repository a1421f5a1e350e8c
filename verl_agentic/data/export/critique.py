"""Values of steps that mix the mean outcome with the verdict of a critic."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from verl_agentic.base.errors import ScoringError, boundary
from verl_agentic.base.registry import load_address
from verl_agentic.base.types import Message
from verl_agentic.data.datasets.preference_pairs import written_messages
from verl_agentic.data.export.logged_sessions import SessionLog
from verl_agentic.data.export.sibling_records import StepValues
from verl_agentic.data.export.step_tree import Step
from verl_agentic.episode.run_each import run_each
from verl_agentic.evaluate.journal import Journal, keep_settings
from verl_agentic.evaluate.policies.best_of import QFunction

AskCritic = Callable[[tuple[Sequence[Message], str]], Awaitable[Mapping[str, float]]]
"""Asks for the `value` of a turn: the conversation before it, and its text. Raises ScoringError if the critic fails."""


@dataclass(frozen=True, kw_only=True)
class Critic:
    """A critic, and how it is asked."""

    function: QFunction | str
    """Takes the conversation and the text of a turn; returns a value of the same scale as outcomes. Or its address."""
    weight: float = 0.5
    """Weight of its value; that of the mean outcome is the rest."""
    jobs: int = 8
    """Turns at a time."""
    journal: Path | None = None
    """File of its values, from which a repeated export continues."""
    asking: AbstractAsyncContextManager[AskCritic] | None = None
    """Gives the function that asks it, here or elsewhere. None: `asking_here`."""

    @contextlib.contextmanager
    def values(self, log: SessionLog, *, settings: Mapping[str, str]) -> Iterator[StepValues]:
        """Yields the function that returns `(1 - weight) * Q + weight * value` of steps.

        Args:
            log: of the steps.
            settings: of the export; a journal of others is refused.
        """
        journal = Journal(self.journal) if self.journal is not None else None
        if journal is not None:
            settings = {**settings, "critic": str(self.function)}
            keep_settings(journal.path.with_suffix(".settings.json"), settings, has_begun=bool(journal.records))
        loop, used = asyncio.new_event_loop(), contextlib.AsyncExitStack()
        try:
            ask = loop.run_until_complete(used.enter_async_context(self.asking or asking_here(self.function)))

            async def value(step: Step) -> float:
                question = _make_step_question(log, step)
                answer = await (journal.kept(_make_key(step), lambda: ask(question)) if journal else ask(question))
                return (1 - self.weight) * step.value + self.weight * answer["value"]

            yield lambda steps: loop.run_until_complete(run_each(steps, value, max_concurrent=self.jobs))
        finally:
            loop.run_until_complete(used.aclose())
            loop.close()
            if journal is not None:
                journal.close()


@contextlib.asynccontextmanager
async def asking_here(function: QFunction | str) -> AsyncIterator[AskCritic]:
    """Yields the function that asks a critic, or the one at an address, in this process."""
    critic = load_address(function, what="the critic") if isinstance(function, str) else function

    async def ask(question: tuple[Sequence[Message], str]) -> dict[str, float]:
        with boundary(ScoringError, "the critic"):
            value = critic(*question)
            value = float(await value if inspect.isawaitable(value) else value)
            if not math.isfinite(value):
                raise ValueError(f"a value must be a finite number, got {value}")
            return {"value": value}

    yield ask


def _make_key(step: Step) -> str:
    row = step.session.own_rows[0]
    return "/".join(str(row[name]) for name in ("split", "step", "uid", "session")) + f"/{step.turn}"


def _make_step_question(log: SessionLog, step: Step) -> tuple[list[Message], str]:
    sample = log.sample(step.session)
    before = replace(sample, turns=tuple(turn for turn in sample.turns if turn.index < step.turn))
    (now,) = (turn for turn in sample.turns if turn.index == step.turn)
    history = [
        Message(message["role"], message.get("text", message.get("content", "")), name=message.get("name", ""))
        for message in written_messages(before)
    ]
    return [*sample.prompt, *history], now.text
