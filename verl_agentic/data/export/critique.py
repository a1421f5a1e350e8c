"""Values of steps that mix the mean outcome with the verdict of a critic."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from verl_agentic.agent_loops.policies.best_of import QFunction
from verl_agentic.data.datasets.preference_pairs import written_messages
from verl_agentic.data.export.logged_sessions import SessionLog
from verl_agentic.data.export.step_tree import Step
from verl_agentic.errors import ScoringError, boundary
from verl_agentic.types import Message


@dataclass(frozen=True, kw_only=True)
class CritiquedValues:
    """Returns `(1 - weight) * Q + weight * critique` for the steps of a state."""

    log: SessionLog
    critic: QFunction
    """Takes the conversation and the text of a turn; returns a value of the same scale as outcomes."""
    weight: float

    def __call__(self, steps: Sequence[Step]) -> list[float]:
        """Asks the critic about all steps at once. Raises ScoringError if it fails."""
        return asyncio.run(self._values(steps))

    async def _values(self, steps: Sequence[Step]) -> list[float]:
        verdicts = await asyncio.gather(*(self._ask(step) for step in steps))
        return [
            (1 - self.weight) * step.value + self.weight * verdict
            for step, verdict in zip(steps, verdicts, strict=True)
        ]

    async def _ask(self, step: Step) -> float:
        sample = self.log.sample(step.session)
        before = replace(sample, turns=tuple(turn for turn in sample.turns if turn.index < step.turn))
        (now,) = (turn for turn in sample.turns if turn.index == step.turn)
        told = [
            Message(message["role"], message.get("text", message.get("content", "")), name=message.get("name", ""))
            for message in written_messages(before)
        ]
        with boundary(ScoringError, "the critic"):
            value = self.critic([*sample.prompt, *told], now.text)
            value = float(await value if inspect.isawaitable(value) else value)
            if not math.isfinite(value):
                raise ValueError(f"a value must be a finite number, got {value}")
            return value
