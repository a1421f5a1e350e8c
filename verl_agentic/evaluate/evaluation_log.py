"""The episodes of an evaluation, in the trajectory log of its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError
from verl_agentic.episode.codec.decoding import exact_decoder
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.records.episode_log import EpisodeHeader, EpisodeLog
from verl_agentic.evaluate.journal import keep_settings, lock_for
from verl_agentic.log.log_options import LogOptions
from verl_agentic.log.reader import RunLog
from verl_agentic.log.run_files import EVALUATION, find_evaluations, find_runs
from verl_agentic.log.schema import TRAJECTORIES
from verl_agentic.log.secrets import WITHHELD
from verl_agentic.log.writer import FOLDER, LogWriter
from verl_agentic.rewards.sample_row import score_of

EpisodeRows = Sequence[Mapping[str, Any]]
"""The log's records of an episode; the last one has its texts, its score, and all columns of the episode."""
_MAX_ID = 2**31 - 1


class EvaluationLog:
    """The episodes of an evaluation, by task and attempt.

    One process has it at a time: until `close`, or until the process ends in whatever way.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        """Locks the folder, reads its episodes, and writes the settings of a new evaluation.

        Raises:
            ConfigError: another process has it, or it holds a run or an evaluation with other settings.
        """
        self._lock = lock_for(self, folder / FOLDER)
        self._columns = {"env": str(settings.get("env") or ""), "temperature": settings.get("temperature") or 0.0}
        self._writer = LogWriter("trajectories", LogOptions(dir=str(folder)))
        try:
            if folder in find_runs(folder):
                raise ConfigError(f"{folder} holds the log of a run; use another --out")
            self.episodes = read_episodes(folder) if folder in find_evaluations(folder) else {}
            """The rows of each episode, by `uid` and `session`."""
            keep_settings(folder / EVALUATION, settings, has_begun=bool(self.episodes))
        except BaseException:
            self.close()
            raise

    def append(self, rows: EpisodeRows) -> None:
        """Writes an episode to disk; it replaces an earlier one of the same attempt."""
        self._writer.write([{**row, **self._columns} for row in rows])
        self.episodes[rows[-1]["uid"], rows[-1]["session"]] = rows

    def close(self) -> None:
        """Closes the file and leaves the folder to other processes."""
        self._writer.close()
        self._lock()


def read_episodes(folder: Path) -> dict[tuple[str, int], EpisodeRows]:
    """Returns the rows of the episodes of an evaluation, by `uid` and `session`.

    Raises:
        DataError: the folder has no episodes.
    """
    log, episodes = RunLog(folder), dict[tuple[str, int], list[dict[str, Any]]]()
    for row in log.records(range(log.summaries.num_rows), TRAJECTORIES.names):
        row |= {name: row[name] and dict(row[name]) for name in ("numbers", "score")}
        episodes.setdefault((row["uid"], row["session"]), []).append(row)
    return {**episodes}


def make_log_rows(
    episode: Episode,
    row: EnvRow,
    *,
    columns: Mapping[str, Any],
    tokenizer: Any,
    numbers: Mapping[str, float] | None = None,
) -> EpisodeRows:
    """Returns the log's records of an episode outside of training.

    Args:
        columns: `uid`, `session` and others that the episode does not have.
        tokenizer: its ids are logged as unknown if they are none of a model's, but stand for bytes.
        numbers: metrics beside those of the episode.
    """
    records: list[dict[str, Any]] = []
    header = EpisodeHeader(
        columns={"step": 0, "split": "val", "role": "policy", "loop": "evaluate", **columns},
        append=lambda make: records.extend(map(dict, make())),
        decode=lambda ids: exact_decoder(tokenizer)(ids),
    )
    log = EpisodeLog(header=header, episode=episode, row=row)
    for index, (trajectory, rewards) in enumerate(zip(episode.trajectories, episode.token_rewards(), strict=True)):
        log.add(index, mask=np.array(trajectory.response_mask), rewards=rewards, void=None)
    log.finish(
        numbers={**episode.numbers(), **(numbers or {})},
        score=None if episode.is_void else score_of(episode.reward),
        acc=None if episode.is_void else episode.reward.outcome,
    )
    for record in records:
        for name in ("prompt_ids", "response_ids"):
            if max(record[name], default=0) > _MAX_ID:
                record[name] = [WITHHELD] * len(record[name])
    return records


def has_log_probs(rows: EpisodeRows) -> bool:
    """Returns whether the log-probs of all rows are known."""
    return all(len(row["rollout_log_probs"]) == len(row["response_ids"]) for row in rows)


def sampled_log_probs(rows: EpisodeRows) -> list[float]:
    """Returns the log-probs of the sampled tokens of an episode."""
    return [p for row in rows for p, m in zip(row["rollout_log_probs"], row["response_mask"], strict=True) if m]
