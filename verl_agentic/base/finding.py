"""Finding: the one result type of all checks before, during and after a run."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["ok", "warn", "fail", "unknown", "not tested"]

# What can be wrong with a training row; `log.row_audit` has the rules.
OBSERVATION_TRAINED = "observation_trained"
LAST_TOKEN_UNTRAINED = "last_token_untrained"
REWARD_OFF_MASK = "reward_off_mask"
LOG_PROBS_MISALIGNED = "log_probs_misaligned"
TEXT_MISMATCH = "text_mismatch"
GROUP_INCOMPLETE = "group_incomplete"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that a check found."""

    check: str = ""
    """Name of the check. A check that is found by its name leaves it out: its caller sets it."""
    status: Status
    """`unknown` if there is nothing to judge by, `not tested` if a check before a run could not test its aspect here;
    `found` then says what is missing."""
    found: str
    """The evidence in words and numbers."""
    advice: str = ""
    """The next thing to try, naming the config key; empty when nothing is to be done."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """The same numbers by name."""
    look_at: tuple[str, ...] = ()
    """Trajectories that show it, as `split/step/uid/session/index`; the viewer finds them by that."""


def ok(found: str) -> Finding:
    """Returns that something is as it should be."""
    return Finding(status="ok", found=found)


def warn(found: str, advice: str, *, evidence: Mapping[str, Any] | None = None, check: str = "") -> Finding:
    """Returns what may be meant, and often is not."""
    return Finding(check=check, status="warn", found=found, advice=advice, evidence=evidence or {})


def judged(
    status: Status,
    *,
    found: str,
    advice: str,
    evidence: Mapping[str, Any],
    check: str = "",
    look_at: tuple[str, ...] = (),
) -> Finding:
    """Returns a finding of any status; advice and trajectories are left out of one that is ok."""
    if status == "ok":
        return Finding(status=status, found=found, evidence=evidence)
    return Finding(check=check, status=status, found=found, advice=advice, evidence=evidence, look_at=look_at)


def fail(found: str, advice: str) -> Finding:
    """Returns what ends or spoils a run, or is ignored by it."""
    return Finding(status="fail", found=found, advice=advice)


def unknown(missing: str) -> Finding:
    """Returns the finding of a check that has nothing to go by."""
    return Finding(status="unknown", found=missing)


def not_tested(missing: str, advice: str = "") -> Finding:
    """Returns the finding of a check before a run that could not test its aspect here."""
    return Finding(status="not tested", found=missing, advice=advice)


@contextlib.contextmanager
def log_only_from(level: int, *, logger: str) -> Iterator[None]:
    """Keeps messages below a level out of the log: the caller reports them as findings."""
    quiet = logging.getLogger(logger)
    before = quiet.level
    quiet.setLevel(level)
    try:
        yield
    finally:
        quiet.setLevel(before)
