"""Logged trajectories of runs and evaluations with their scores, to score them again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from verl_agentic.base.errors import DataError
from verl_agentic.log.run_files import choose_logs, find_evaluations
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.sample_row import from_columns

Split = Literal["train", "val"]
SAMPLE_COLUMNS = (
    *("session", "task_id", "data_source", "stop_reason", "prompt", "turns", "final_answer", "ground_truth"),
    *("extra", "env_score"),
)
"""Columns of the log that make a sample."""
_COLUMNS = ("uid", "step", "split", "place", "role", "is_void", "score", *SAMPLE_COLUMNS)


@dataclass(frozen=True, kw_only=True)
class StoredSample:
    """One trajectory of a run."""

    group: str
    """Name of the prompt; trajectories of one group come from the same weights."""
    session: int
    """Number of the trajectory in its group."""
    step: int
    """Training step, from 1; 0 outside of training."""
    split: Split
    sample: Sample
    score: Mapping[str, float] | None = None
    """Its score: `score` (without the environment's turn rewards), `acc`, parts; None if unknown."""
    source: str = ""
    """Its source: the folder of an evaluation, or `training`."""

    @property
    def key(self) -> tuple[str, str, int, str]:
        """The unique name of the group."""
        return (self.source, self.split, self.step, self.group)


def read_samples(run_dir: Path) -> list[StoredSample]:
    """Returns all trajectories stored below a folder, sorted by source, split, step, group and session.

    Raises:
        DataError: the folder does not exist or has no trajectories.
    """
    if not run_dir.is_dir():
        raise DataError(f"no such folder, got {run_dir}; name the folder of a run")
    evaluations = find_evaluations(run_dir)
    trajectories = [
        sample for folder in evaluations for sample in _iter_samples(folder, source=str(folder.relative_to(run_dir)))
    ]
    if any(folder not in evaluations for folder in choose_logs(run_dir)):
        trajectories += _iter_samples(run_dir, source="training")
    if not trajectories:
        raise DataError(
            f"no trajectories are stored below {run_dir}; set agentic.log.dir in "
            "the run, or name the folder of `verl-agentic evaluate` or `quickstart`"
        )
    return sorted(trajectories, key=lambda stored: (*stored.key, stored.session))


def take_groups(stored: Sequence[StoredSample], limit: int) -> list[list[StoredSample]]:
    """Returns the groups; above `limit` samples only some of them, evenly over the run."""
    groups: dict[tuple[str, str, int, str], list[StoredSample]] = {}
    for trajectory in stored:
        groups.setdefault(trajectory.key, []).append(trajectory)
    every = list(groups.values())
    count = max(1, min(len(every), limit * len(every) // len(stored)))
    return [every[index * len(every) // count] for index in range(count)]


def _iter_samples(folder: Path, *, source: str) -> Iterator[StoredSample]:
    from verl_agentic.log.reader import RunLog  # pyarrow takes a while to import

    for record in RunLog(folder).table("trajectories", _COLUMNS).to_pylist():
        is_whole = record["place"] == "last" and not record["is_void"] and bool(record["extra"])
        if is_whole and record["role"] != "external":
            yield StoredSample(
                group=record["uid"],
                session=record["session"],
                step=record["step"],
                split=record["split"],
                sample=from_columns(record),
                score=None if record["score"] is None else dict(record["score"]),
                source=source,
            )
