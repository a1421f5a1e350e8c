"""What a diagnostic has to say about a run: one line of `health.jsonl`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast, get_args

from verl_agentic.errors import DataError

Level = Literal["log", "warn", "rollback", "stop"]
LEVELS: tuple[Level, ...] = get_args(Level)


@dataclass(frozen=True)
class Finding:
    """Something that goes wrong, with the evidence and the next thing to try."""

    step: int
    """Training step at which it was found."""
    name: str
    """Of the alarm, or of the check."""
    level: Level
    """What is to be done: note it, warn of it, go back to the last healthy checkpoint, or stop the run."""
    message: str
    """What was seen, in numbers, beside the threshold, and since when."""
    evidence: Mapping[str, float | str]
    advice: str
    """The next thing to try; names the config key."""

    def to_dict(self) -> dict[str, Any]:
        """Returns what JSON can hold; numbers that are not finite become text."""
        evidence = {name: _plain(value) for name, value in self.evidence.items()}
        return {**asdict(self), "evidence": evidence}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Finding:
        """Returns the finding of a line of `health.jsonl`; what else stands there (its time) is left out.

        Raises:
            DataError: something is missing, or there is no such level.
        """
        names = list(cls.__dataclass_fields__)
        missing = [name for name in names if name not in values]
        if missing or values["level"] not in LEVELS or not isinstance(values["evidence"], Mapping):
            raise DataError(
                f"a finding must have {names}, a level of {list(LEVELS)} and an object of evidence, got {dict(values)}"
            )
        return cls(
            step=int(values["step"]),
            name=str(values["name"]),
            level=cast("Level", values["level"]),
            message=str(values["message"]),
            evidence=dict(values["evidence"]),
            advice=str(values["advice"]),
        )

    def __str__(self) -> str:
        """Returns one line for a log."""
        return f"health/{self.name} at step {self.step}: {self.message}. Try: {self.advice}"


def _plain(value: float | str) -> float | str:
    if isinstance(value, str):
        return value
    return float(value) if math.isfinite(value) else str(value)
