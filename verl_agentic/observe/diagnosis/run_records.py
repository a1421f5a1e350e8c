"""The files of a run; each is read once, when it is needed."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from verl_agentic.log.reader import RunLog
from verl_agentic.log.run_files import ENDED
from verl_agentic.log.schema import SUMMARY
from verl_agentic.log.secrets import WITHHELD
from verl_agentic.observe.diagnosis import run_folder
from verl_agentic.observe.diagnosis.series import RECENT_STEPS
from verl_agentic.observe.live.root_causes import ErrorRecord, merged, read_errors

Frame = Any
"""A data frame of pandas, whose type stubs allow rows[mask] to be a column."""
# A tool as chat templates write it into the prompt.
_OFFERED = re.compile(r'"name"\s*:\s*"([\w.-]+)"\s*,\s*"(?:description|parameters)"')
_SAMPLE = 96
_SAMPLE_S = 3.0
"""Limit of CPU time for reading whole records, in seconds. With wall time, other processes would change verdicts."""


class RunRecords:
    """The contents of a run's folder. Missing files are empty."""

    def __init__(self, run_dir: Path, *, now: float | None = None) -> None:
        """Opens a folder; reads nothing yet.

        Args:
            run_dir: the folder; everything below it is searched.
            now: seconds since 1970, to judge whether the run is alive; None: now.
        """
        self.run_dir = run_dir
        self.now = time.time() if now is None else now

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """One mapping per step, ascending, with `step` and every number that was logged."""
        return run_folder.read_steps(self.run_dir)

    @cached_property
    def log(self) -> RunLog | None:
        """The trajectory log; None without one."""
        return run_folder.read_log(self.run_dir)

    @cached_property
    def rows(self) -> Frame:
        """A line per training row, with the columns of both summaries; the index is the row's number in the log."""
        if self.log is not None:
            return self.log.summaries.to_pandas()
        return pd.DataFrame({name: [] for name in [*SUMMARY["trajectories"], *SUMMARY["updates"]]})

    @cached_property
    def episodes(self) -> Frame:
        """The last row of every training session that the policy has sampled."""
        rows = self.rows
        return rows[(rows["split"] == "train") & (rows["place"] == "last") & (rows["role"] == "policy")]

    @cached_property
    def recent(self) -> Frame:
        """The episodes of the last steps."""
        return _select_last_steps(self.episodes)

    @cached_property
    def valid(self) -> Frame:
        """Recent episodes that are not void."""
        return self.recent[~self.recent["is_void"].astype(bool)]

    @cached_property
    def sample(self) -> list[dict[str, Any]]:
        """Whole records of training rows that are not void: half of them recent, the others from all over the run."""
        rows = self.rows
        if self.log is None:
            return []
        usable = rows[(rows["split"] == "train") & ~rows["is_void"].astype(bool)]
        recent = _pick_evenly(_select_last_steps(usable).index.to_numpy(), _SAMPLE // 2)
        others = _pick_evenly(usable.index.difference(recent).to_numpy(), _SAMPLE - len(recent))
        records, started = [], time.process_time()
        for row in [*recent, *others]:
            if records and time.process_time() - started > _SAMPLE_S:
                break
            records.append(self.log.record(row))
        return records

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved config."""
        for path in sorted(self.run_dir.rglob("config.yaml")):
            config = run_folder.read_or_none(path, lambda text: yaml.safe_load(text))
            if isinstance(config, dict) and "trainer" in config:
                return config
        return {}

    @cached_property
    def errors(self) -> list[ErrorRecord]:
        """First errors of the run's processes, one of each kind, the earliest first."""
        return merged(read_errors(self.run_dir))

    @cached_property
    def findings(self) -> list[dict[str, Any]]:
        """Findings of the health alarms and of the audit of batches (`audit/<breach>`) during the run."""
        return run_folder.read_json_lines(self.run_dir, "health.jsonl")

    @cached_property
    def waiting(self) -> list[dict[str, Any]]:
        """The last report of each agent-loop worker on its waiting episodes."""
        return run_folder.read_reports(self.run_dir)

    @cached_property
    def ended(self) -> bool | None:
        """True if the trainer recorded its end, False if it only recorded its beginning, None without a record."""
        noted = [line for line in run_folder.read_json_lines(self.run_dir, ENDED) if is_number(line.get("time"))]
        return bool(max(noted, key=lambda line: line["time"]).get("ended")) if noted else None

    @cached_property
    def output(self) -> str:
        """The end of the run's output, if it is in the folder."""
        return run_folder.read_output(self.run_dir)

    @cached_property
    def cut_off_files(self) -> list[Path]:
        """Files of the trajectory log that end in the middle of a record."""
        return run_folder.cut_off(self.run_dir)

    @cached_property
    def touched(self) -> float | None:
        """Time of the last write to a file, in seconds since 1970; None for an empty folder."""
        return run_folder.last_touched(self.run_dir)

    @cached_property
    def tokenizer(self) -> Any:
        """The run's tokenizer; None without one."""
        return run_folder.read_tokenizer(self.run_dir)

    @cached_property
    def offered_tools(self) -> list[str]:
        """Tools that the rendered prompts of some rows offer."""
        names: dict[str, None] = {}
        for record in self.sample[:4]:
            text = " ".join(message["content"] or "" for message in record["prompt"] or ())
            if self.tokenizer is not None:
                ids = [token for token in record["prompt_ids"] if token != WITHHELD]
                text += self.tokenizer.decode(ids, skip_special_tokens=False)
            names.update(dict.fromkeys(_OFFERED.findall(text)))
        return list(names)

    @property
    def is_empty(self) -> bool:
        """True if the folder has no metrics, rows, errors, findings or output."""
        return not (self.metrics or len(self.rows) or self.errors or self.findings or self.waiting or self.output)

    @property
    def last_step(self) -> int:
        """The last known step; 0 before the first."""
        logged = self.metrics[-1]["step"] if self.metrics else 0
        return max(logged, int(self.rows["step"].max()) if len(self.rows) else 0)

    def setting(self, key: str) -> Any:
        """Returns a value of the config by its dotted key; None if it is unknown."""
        value: Any = self.config
        for part in key.split("."):
            if not isinstance(value, dict) or part not in value:
                return None
            value = value[part]
        return value


def _select_last_steps(rows: Frame) -> Frame:
    return rows[rows["step"] > rows["step"].max() - RECENT_STEPS] if len(rows) else rows


def _pick_evenly(values: Sequence[int] | np.ndarray, count: int) -> list[int]:
    if len(values) <= count:
        return [int(value) for value in values]
    return [int(values[place]) for place in np.linspace(0, len(values) - 1, count).astype(int)]


def is_number(value: Any) -> bool:
    """Returns whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
