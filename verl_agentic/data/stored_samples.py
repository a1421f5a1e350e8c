"""Stored trajectories of a run with their scores, to score them again.

Training writes them into its log (`trajectory_log`). Evaluations add a record `{"group", "session", "step", "split",
"sample", "score"}` to their lines under the key `stored_sample`. `read_samples` finds both.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import AgenticError, DataError
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.records.episode_samples import to_sample
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.sample_row import from_columns, score_of

logger = logging.getLogger(__name__)
Split = Literal["train", "val"]
STORED_SAMPLE = "stored_sample"
"""Key of the record in an evaluation's lines."""
EPISODES = "episodes.jsonl"
"""File of `verl-agentic evaluate`, with a line per attempt."""
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
    """Its source: a file, or `training`."""

    @property
    def key(self) -> tuple[str, str, int, str]:
        """The unique name of the group."""
        return (self.source, self.split, self.step, self.group)

    def to_dict(self) -> dict[str, Any]:
        """Returns the record as JSON, for `from_dict`."""
        return {
            "group": self.group,
            "session": self.session,
            "step": self.step,
            "split": self.split,
            "sample": self.sample.to_dict(),
            "score": None if self.score is None else dict(self.score),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], *, source: str = "") -> StoredSample:
        """Returns the trajectory of a record.

        Raises:
            DataError: a field is missing or malformed.
        """
        try:
            if record["split"] not in get_args(Split):
                raise ValueError(f"split is {record['split']!r}")
            return cls(
                group=str(record["group"]),
                session=int(record["session"]),
                step=int(record["step"]),
                split=record["split"],
                sample=Sample.from_dict(record["sample"]),
                score=None if record["score"] is None else {k: float(v) for k, v in record["score"].items()},
                source=source,
            )
        except AgenticError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as cause:
            raise DataError(f"not a stored sample, got {type(cause).__name__}: {cause}; store it again") from cause


def read_samples(run_dir: Path) -> list[StoredSample]:
    """Returns all trajectories stored below a folder, sorted by source, split, step, group and session.

    An incomplete last line is skipped with a warning.

    Raises:
        DataError: the folder does not exist or has no trajectories, or another line is not a record.
    """
    if not run_dir.is_dir():
        raise DataError(f"no such folder, got {run_dir}; name the folder of a run")
    trajectories = [*_of_training(run_dir), *_of_evaluations(run_dir), *_of_quickstart(run_dir)]
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


def stored_episode(episode: Episode, row: EnvRow, *, group: str, session: int = 0) -> dict[str, Any] | None:
    """Returns the record of an episode outside of training; None for a void one."""
    if episode.is_void:
        return None
    sample = to_sample(episode, row, id=f"{row.extra.get('task_id') or group}/{session}")
    stored = StoredSample(group=group, session=session, step=0, split="val", sample=sample, score=score_of(sample.env))
    return stored.to_dict()


def _of_training(run_dir: Path) -> Iterator[StoredSample]:
    from verl_agentic.log.reader import RunLog  # pyarrow takes a while to import

    if not any(run_dir.rglob("trajectories-*.arrows")):
        return
    for record in RunLog(run_dir).table("trajectories", _COLUMNS).to_pylist():
        is_whole = record["place"] == "last" and not record["is_void"] and bool(record["extra"])
        if is_whole and record["role"] != "external":
            yield StoredSample(
                group=record["uid"],
                session=record["session"],
                step=record["step"],
                split=record["split"],
                sample=from_columns(record),
                score=None if record["score"] is None else dict(record["score"]),
                source="training",
            )


def _of_evaluations(run_dir: Path) -> Iterator[StoredSample]:
    for path in sorted(run_dir.rglob(EPISODES)):
        last = {record.get("key"): (location, record) for location, record in json_records(path)}
        for location, record in last.values():
            if record.get(STORED_SAMPLE) is not None:
                yield _parse_sample(record[STORED_SAMPLE], location, str(path.relative_to(run_dir)))


def _of_quickstart(run_dir: Path) -> Iterator[StoredSample]:
    for path in sorted(run_dir.rglob("*.json")):
        if path.parent.name != "eval" and path.parent != run_dir:
            continue
        try:
            records = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            logger.warning("%s is not JSON and was skipped; it may be incomplete", path)
            continue
        for record in records if isinstance(records, list) else ():
            if isinstance(record, dict) and record.get(STORED_SAMPLE) is not None:
                yield _parse_sample(record[STORED_SAMPLE], str(path), str(path.relative_to(run_dir)))


def json_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the place of each record and the record; skips an incomplete last line."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            location = f"{path}:{number}"
            try:
                record = json.loads(line)
            except ValueError as cause:
                if not line.endswith("\n"):
                    logger.warning("%s is incomplete and was skipped", location)
                    return
                raise DataError(f"{location} is not JSON, got {line[:80]!r}; remove the line") from cause
            if not isinstance(record, dict):
                raise DataError(f"{location} is not a JSON object, got {line[:80]!r}; remove the line")
            yield location, record


def _parse_sample(record: Any, location: str, source: str) -> StoredSample:
    try:
        return StoredSample.from_dict(record, source=source)
    except DataError as cause:
        raise DataError(f"{location}: {cause}") from cause
