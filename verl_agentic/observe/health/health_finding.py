"""Findings of alarms and audits at a training step: the lines of `health.jsonl`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from verl_agentic.base.finding import Finding

Level = Literal["log", "warn", "rollback", "stop"]
LEVELS: tuple[Level, ...] = get_args(Level)


@dataclass(frozen=True, kw_only=True)
class HealthFinding(Finding):
    """A finding at a step of a run, and the action that it causes."""

    step: int
    """Training step at which it was found."""
    level: Level
    """Log, warn, go back to the last healthy checkpoint, or stop the run."""

    def to_dict(self) -> dict[str, Any]:
        """Returns a line of `health.jsonl`; non-finite numbers become text."""
        return {
            "step": self.step,
            "name": self.check,
            "level": self.level,
            "message": self.found,
            "evidence": {name: _to_plain_value(value) for name, value in self.evidence.items()},
            "advice": self.advice,
        }

    def __str__(self) -> str:
        """Returns one line for a log."""
        return f"health/{self.check} at step {self.step}: {self.found}. Try: {self.advice}"


def _to_plain_value(value: float | str) -> float | str:
    if isinstance(value, str):
        return value
    return float(value) if math.isfinite(value) else str(value)
