"""One export: from the log of a run to a file."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.data.export.choose_sessions import best_of_groups, first_of_prompts, passing
from verl_agentic.data.export.critique import Critic
from verl_agentic.data.export.logged_sessions import COLUMNS, LoggedSession, SessionLog, open_sessions
from verl_agentic.data.export.row_filter import RowFilter
from verl_agentic.data.export.row_records import reward_parts, row_records
from verl_agentic.data.export.shapes import SHAPES
from verl_agentic.data.export.sibling_records import (
    OUTCOME,
    STEP,
    StepValues,
    mean_outcomes,
    pair_records,
    step_pair_records,
    step_records,
)
from verl_agentic.data.export.unguided_log import UnguidedLog
from verl_agentic.data.export.write_records import write_records
from verl_agentic.graders.stored_samples import Split


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
    critic: Critic | None = None
    """Judges steps."""
    drop_guidance: bool = False
    """Writes guided attempts behind the prompt of unguided ones."""

    @property
    def compares_steps(self) -> bool:
        """Returns whether turns of one state are compared."""
        return self.shape == "steps" or (self.shape == "pairs" and self.by == STEP)

    def check(self) -> None:
        """Raises ConfigError if an option is wrong."""
        if self.shape not in SHAPES:
            raise ConfigError(f"as must be one of {sorted(SHAPES)}, got {self.shape!r}; name one")
        for name in ("best", "per_prompt", "continuations"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ConfigError(f"{name} must be positive, got {number}")
        if self.critic is not None and not 0 <= self.critic.weight <= 1:
            raise ConfigError(f"the weight of a critic lies between 0 and 1, got {self.critic.weight}; scale it")
        if self.by == STEP and (self.shape != "pairs" or self.best is not None):
            raise ConfigError(f"by=step makes pairs of steps, got shape {self.shape}, best={self.best}; change it")
        without_effect = {
            "gap": self.gap != 0 and self.shape != "pairs",
            "continuations": self.continuations != ExportOptions.continuations and not self.compares_steps,
        }
        if unused := [name for name, is_unused in without_effect.items() if is_unused]:
            raise ConfigError(f"{unused[0]} has no effect, got shape {self.shape} by {self.by}; drop it")
        if self.critic is not None and not self.compares_steps:
            raise ConfigError(f"a critic judges steps, got shape {self.shape} by {self.by}; drop it")
        if self.drop_guidance and self.shape == "rows":
            raise ConfigError("rows have log-probs behind the guidance, got drop_guidance; export another shape")
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
        ConfigError: an option is wrong.
        DataError: the log cannot be read, a mask in it is wrong, or no record is left.
    """
    options.check()
    left_out: Counter[str] = Counter()
    critic = options.critic
    log = open_sessions(run_dir, kind=UnguidedLog if options.drop_guidance else SessionLog)
    with contextlib.ExitStack() as used:
        sessions = _choose_sessions(log, options, left_out)
        parts = reward_parts(sessions) if options.shape == "rows" else []
        values = mean_outcomes
        if critic is not None:
            values = used.enter_context(critic.values(log, settings={"run_dir": str(run_dir.resolve())}))
        records = _make_records(log, sessions, options, parts, values, left_out)
        first = next(records, None)
        if first is None:
            reasons = _describe_left_out(left_out) or "no row left out"
            raise DataError(f"no record is left for {out}, got {reasons}; {_describe_need(options)}")
        columns = {**SHAPES[options.shape], **dict.fromkeys(parts, pa.float64())}
        count = write_records(chain([first], records), out, columns=columns)
    return Exported(records=count, rows=sum(len(session.rows) for session in sessions), left_out=dict(+left_out))


def _choose_sessions(log: SessionLog, options: ExportOptions, left_out: Counter[str]) -> list[LoggedSession]:
    sessions = log.sessions(split=options.split, left_out=left_out)
    if options.where is not None:
        condition = RowFilter(options.where, columns=COLUMNS)
        is_whole = options.shape in ("pairs", "steps")
        sessions = passing(sessions, condition, is_whole=is_whole, left_out=left_out)
    if options.best is not None:
        sessions = best_of_groups(sessions, options.best, value_name=options.by, left_out=left_out)
    if options.per_prompt is not None:
        sessions = first_of_prompts(log, sessions, options.per_prompt, left_out=left_out)
    return sessions


def _make_records(
    log: SessionLog,
    sessions: list[LoggedSession],
    options: ExportOptions,
    parts: list[str],
    values: StepValues,
    left_out: Counter[str],
) -> Iterator[dict[str, Any]]:
    if options.compares_steps:
        make = step_records if options.shape == "steps" else step_pair_records
        gap = {} if options.shape == "steps" else {"min_gap": options.gap}
        count = options.continuations
        return make(log, sessions, values=values, min_continuations=count, left_out=left_out, **gap)
    if options.shape == "pairs":
        return pair_records(log, sessions, value_name=options.by, min_gap=options.gap, left_out=left_out)
    return row_records(log, sessions, shape=options.shape, parts=parts, left_out=left_out)


def _describe_need(options: ExportOptions) -> str:
    """Returns what a record of the shape needs."""
    if options.shape == "steps":
        return f"a step is a turn that {options.continuations} sessions share; lower --continuations"
    if options.shape == "pairs":
        of = (
            f"two turns of one state that {options.continuations} sessions share each"
            if options.by == STEP
            else "two attempts at one prompt"
        )
        value_name = "value" if options.by == STEP else options.by
        return f"a pair needs {of}, and their {value_name} must differ by more than {options.gap:g}"
    return "change --where, --split, --best or --per-prompt"


def _describe_left_out(left_out: Counter[str]) -> str:
    return ", ".join(f"{count} rows {reason}" for reason, count in (+left_out).items())
