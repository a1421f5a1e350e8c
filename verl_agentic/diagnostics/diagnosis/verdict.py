"""One line of a diagnosis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["ok", "warn", "fail", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a check has seen in a run."""

    status: Status
    """`unknown` where the run left nothing to judge by; `found` then says what is missing."""
    found: str
    """The evidence in numbers, with steps."""
    advice: str = ""
    """The next thing to try, naming the config key; empty when nothing is to be done."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """The same numbers by name."""
    look_at: tuple[str, ...] = ()
    """Trajectories that show it, as `split/step/uid/session/index`; the viewer finds them by that."""

    def to_dict(self) -> dict[str, Any]:
        """Returns it as JSON has it."""
        return {
            "status": self.status,
            "found": self.found,
            "advice": self.advice,
            "evidence": dict(self.evidence),
            "look_at": list(self.look_at),
        }


def unknown(missing: str) -> Verdict:
    """Returns the verdict of a check that has nothing to go by."""
    return Verdict(status="unknown", found=missing)
