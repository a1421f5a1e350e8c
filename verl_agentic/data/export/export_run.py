"""One export: from the log of a run to a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from verl_agentic.agent_loops.policies.best_of import QFunction
from verl_agentic.data.export.choose_sessions import best_of_groups, first_of_prompts, passing
from verl_agentic.data.export.critique import CritiquedValues
from verl_agentic.data.export.logged_sessions import COLUMNS, LoggedSession, SessionLog, open_sessions
from verl_agentic.data.export.row_filter import RowFilter
from verl_agentic.data.export.row_records import reward_parts, row_records
from verl_agentic.data.export.shapes import SHAPES
from verl_agentic.data.export.sibling_records import (
    OUTCOME,
    STEP,
    mean_outcomes,
    pair_records,
    step_pair_records,
    step_records,
)
from verl_agentic.data.export.write_records import write_records
from verl_agentic.data.stored_samples import Split
from verl_agentic.errors import ConfigError, DataError
from verl_agentic.registry import load_address


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Choice of rows, and the shape of their records."""

    shape: str
    """A name of `SHAPES`."""
    split: Split | None = None
    """None: training, or validation and evaluations if there is none."""
    where: str | None = None
    """Condition on rows (`RowFilter`)."""
    best: int | None = None
    """Maximum number of sessions of each group, those with the highest values."""
    per_prompt: int | None = None
    """Maximum number of sessions of each prompt, the first ones."""
    by: str = OUTCOME
    """Value that `best` and pairs compare: a column or a part of the reward; `step` for pairs of steps."""
    gap: float = 0.0
    """Pairs whose values differ by at most this are left out."""
    continuations: int = 4
    """Minimum number of sessions that continue from a step with a value."""
    critic: QFunction | str | None = None
    """Judges steps: a function, or its address."""
    critic_weight: float = 0.5

    @property
    def compares_steps(self) -> bool:
        """Whether turns of one state are compared."""
        return self.shape == "steps" or (self.shape == "pairs" and self.by == STEP)

    def check(self) -> None:
        """Raises ConfigError if an option is wrong."""
        if self.shape not in SHAPES:
            raise ConfigError(f"as must be one of {sorted(SHAPES)}, got {self.shape!r}; name one")
        for name in ("best", "per_prompt", "continuations"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ConfigError(f"{name} must be positive, got {number}")
        if not 0 <= self.critic_weight <= 1:
            raise ConfigError(f"critic_weight lies between 0 and 1, got {self.critic_weight}; scale it")
        if self.by == STEP and (self.shape != "pairs" or self.best is not None):
            raise ConfigError(f"by=step makes pairs of steps, got shape {self.shape}, best={self.best}; change it")
        if self.critic is not None and not self.compares_steps:
            raise ConfigError(f"a critic judges steps, got shape {self.shape} by {self.by}; drop it")
        if self.where is not None:
            RowFilter(self.where, columns=COLUMNS)


@dataclass(frozen=True, kw_only=True)
class Exported:
    """The numbers of an export."""

    records: int
    rows: int
    """Training rows of the log that were chosen."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Reason -> number of training rows of the log."""


def export_run(run_dir: Path, out: Path, options: ExportOptions) -> Exported:
    """Writes the file, and returns the numbers.

    Args:
        run_dir: folder of a run, or of evaluations.
        out: `.parquet` or `.jsonl`.
        options: shape and choice.

    Raises:
        ConfigError: an option is wrong. DataError: the log cannot be read, a mask in it is wrong, or no record is left.
    """
    options.check()
    left_out: Counter[str] = Counter()
    with open_sessions(run_dir) as log:
        sessions = _chosen(log, options, left_out)
        parts = reward_parts(sessions) if options.shape == "rows" else []
        records = _records(log, sessions, options, parts, left_out)
        first = next(records, None)
        if first is None:
            raise DataError(f"no record is left for {out}, got {_told(left_out) or 'no branch points'}; choose more")
        columns = {**SHAPES[options.shape], **dict.fromkeys(parts, pa.float64())}
        count = write_records(chain([first], records), out, columns=columns)
    return Exported(records=count, rows=sum(len(session.rows) for session in sessions), left_out=+left_out)


def _chosen(log: SessionLog, options: ExportOptions, left_out: Counter[str]) -> list[LoggedSession]:
    sessions = log.sessions(split=options.split, left_out=left_out)
    if options.where is not None:
        condition = RowFilter(options.where, columns=COLUMNS)
        is_whole = options.shape in ("pairs", "steps")
        sessions = passing(sessions, condition, is_whole=is_whole, left_out=left_out)
    if options.best is not None:
        sessions = best_of_groups(sessions, options.best, by=options.by, left_out=left_out)
    if options.per_prompt is not None:
        sessions = first_of_prompts(sessions, options.per_prompt, left_out=left_out)
    return sessions


def _records(
    log: SessionLog,
    sessions: list[LoggedSession],
    options: ExportOptions,
    parts: list[str],
    left_out: Counter[str],
) -> Iterator[dict[str, Any]]:
    if options.compares_steps:
        critic, weight = options.critic, options.critic_weight
        critic = load_address(critic, what="the critic") if isinstance(critic, str) else critic
        values = mean_outcomes if critic is None else CritiquedValues(log=log, critic=critic, weight=weight)
        make = step_records if options.shape == "steps" else step_pair_records
        gap = {} if options.shape == "steps" else {"min_gap": options.gap}
        count = options.continuations
        return make(log, sessions, values=values, min_continuations=count, left_out=left_out, **gap)
    if options.shape == "pairs":
        return pair_records(log, sessions, by=options.by, min_gap=options.gap, left_out=left_out)
    return row_records(log, sessions, shape=options.shape, parts=parts, left_out=left_out)


def _told(left_out: Counter[str]) -> str:
    return ", ".join(f"{count} rows {reason}" for reason, count in (+left_out).items())
