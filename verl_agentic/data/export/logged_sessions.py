"""Sessions of a run's log or of evaluations, with the ids and masks that training saw."""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.base.trajectory import find_trained_observation
from verl_agentic.base.types import Segment
from verl_agentic.graders.stored_samples import SAMPLE_COLUMNS, Split
from verl_agentic.log.reader import RunLog
from verl_agentic.log.row_audit import find_wrong_lengths
from verl_agentic.log.run_files import choose_logs
from verl_agentic.log.schema import SUMMARY
from verl_agentic.log.secrets import WITHHELD
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.sample_row import from_columns

logger = logging.getLogger(__name__)
MAPS = ("numbers", "score")
"""Columns of numbers by name, in conditions and values."""
COLUMNS = frozenset({*SUMMARY["trajectories"], *SUMMARY["updates"], *MAPS, "guided", "branched"})
"""Columns of a session's rows, for conditions."""
_READ_ROWS = 1_024
TOKENS = ("prompt_ids", "response_ids", "response_mask", "turn_ids", "rollout_log_probs", "token_rewards", "segments")


@dataclass(frozen=True, kw_only=True)
class LoggedSession:
    """The rows of one episode that is not void."""

    rows: tuple[Mapping[str, Any], ...]
    """`COLUMNS` of each training row and `line`, its line in the log; those of sub-agents first."""

    @property
    def group(self) -> tuple[Any, ...]:
        """Name of the sessions of one prompt in one step."""
        return tuple(self.rows[-1][name] for name in ("split", "step", "uid"))

    @property
    def own_rows(self) -> tuple[Mapping[str, Any], ...]:
        """Its rows without those of sub-agents."""
        return tuple(row for row in self.rows if row["place"] != "side")

    def value(self, name: str) -> float | None:
        """Returns a column, or else a number of `score` or `numbers`; None if it is unknown."""
        last = self.rows[-1]
        for columns in (last, *(last[name] for name in MAPS)):
            if isinstance(columns.get(name), int | float):
                return float(columns[name])
        return None


class SessionLog:
    """The log of a run, or of evaluations."""

    def __init__(self, log: RunLog) -> None:
        self._log = log

    def sessions(self, *, split: Split | None, left_out: Counter[str]) -> list[LoggedSession]:
        """Returns the sessions that may be trained on, by step, group and session.

        Args:
            split: None takes training, or else validation and evaluations.
            left_out: counts rows of other sessions by reason: void ones, those that the audit found different from
                what the policy did, incomplete ones, those whose ids no server gave, and those of the other split.
        """
        splits, loops = (self._log.summaries[name].unique().to_pylist() for name in ("split", "loop"))
        chosen_split = split or ("train" if "train" in splits else "val")
        if split is None and chosen_split == "val" and loops != ["evaluate"]:
            logger.warning("the run has no training rows yet, so its validation rows are exported; pass --split")
        sessions = []
        for _, members in groupby(
            self._iter_rows(), key=lambda row: (row["split"], row["step"], row["uid"], row["session"])
        ):
            logged = list(members)
            session = tuple({**row, "score": logged[-1]["score"]} for row in logged)  # only the last row has it
            reason = _find_exclusion(session, chosen_split)
            if reason:
                left_out[reason] += len(session)
            else:
                sessions.append(LoggedSession(rows=session))
        return sessions

    def _iter_rows(self) -> Iterator[dict[str, Any]]:
        """Yields `COLUMNS` and `line` of all rows."""
        batches = self._log.summaries.to_batches(max_chunksize=_READ_ROWS)
        lines = chain.from_iterable(batch.to_pylist() for batch in batches)
        numbers = self._log.records(range(self._log.summaries.num_rows), MAPS)
        for line, (row, maps) in enumerate(zip(lines, numbers, strict=True)):
            yield _with_maps({**row, "line": line}, maps)

    def tokens(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any] | None]:
        """Yields `TOKENS` of rows; None for a row with a secret, whose tokens the log withholds.

        Raises:
            DataError: the mask of a row is not that of the policy's tokens.
        """
        for row, record in zip(rows, self._log.records([row["line"] for row in rows], TOKENS), strict=True):
            if WITHHELD in record["prompt_ids"] or WITHHELD in record["response_ids"]:
                yield None
            else:
                _check_tokens(row, record)
                yield record

    def prompts(self, sessions: Sequence[LoggedSession]) -> Iterator[str]:
        """Yields the conversation of each session before its first turn; empty if its last row was left out."""
        for record in self._log.records([session.rows[-1]["line"] for session in sessions], ("prompt",)):
            yield repr(record["prompt"])

    def sample(self, session: LoggedSession) -> Sample:
        """Returns the texts of a session. Raises DataError for sessions of other loops than `env_agent`."""
        (record,) = self._log.records([session.rows[-1]["line"]], SAMPLE_COLUMNS)
        if not record["extra"]:
            raise DataError(
                f"a session of the loop {session.rows[-1]['loop']!r} has no sample; leave it out with --where"
            )
        return from_columns(record)


def open_sessions(run_dir: Path, *, kind: type[SessionLog] = SessionLog) -> SessionLog:
    """Opens the log of a run, or else of all evaluations at or below a folder, as a log of this kind.

    Raises:
        ConfigError: the folder has logs of several tokenizers.
        DataError: it has neither.
    """
    _check_tokenizers(choose_logs(run_dir))
    return kind(RunLog(run_dir))


def _check_tokenizers(folders: Iterable[Path]) -> None:
    """Raises ConfigError if logs have ids of different tokenizers."""
    first: dict[str, Path] = {}
    files = sorted(path for folder in folders if (path := folder / "tokenizer" / "tokenizer.json").is_file())
    for path in files if len(files) > 1 else ():
        tokenizer = json.loads(path.read_text(encoding="utf-8"))
        added = {token["content"]: token["id"] for token in tokenizer.get("added_tokens") or ()}
        first.setdefault(json.dumps([tokenizer["model"].get("vocab"), added], sort_keys=True), path)
    if len(first) > 1:
        raise ConfigError(
            f"one export has ids of one tokenizer, got {', '.join(map(str, first.values()))}; export each log alone"
        )


def _with_maps(row: Mapping[str, Any], maps: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row with numbers by name, and whether it is guided or branched; only finite numbers are known."""
    named = {name: _replace_nonfinite(dict(maps[name] or ())) for name in MAPS}
    return {
        **_replace_nonfinite(row),
        **named,
        **{name: bool(named["numbers"].get(name)) for name in ("guided", "branched")},
    }


def _replace_nonfinite(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in values.items()
    }


def _find_exclusion(session: Sequence[Mapping[str, Any]], split: str) -> str:
    """Returns why a session is left out; empty if it is not."""
    if session[-1]["split"] != split:
        return f"of split {session[-1]['split']}"
    if any(row["is_void"] for row in session):
        return "void"
    if any(row["breach"] for row in session):
        return "different from what the policy did (audit)"
    if session[-1]["id_source"] not in ("", "exact"):
        return "without exact token ids (evaluate with --tokenizer)"
    if session[-1]["place"] != "last" or [row["index"] for row in session] != [*range(len(session))]:
        return "of episodes with lost or repeated rows"
    return ""


def _check_tokens(row: Mapping[str, Any], record: Mapping[str, Any]) -> None:
    """Compares ids, mask and turns of a row with its segments and counts, which were logged apart from them."""
    if fault := find_wrong_lengths(record) or _find_fault(row, record):
        raise DataError(
            f"row {row['uid']}/{row['session']}/{row['index']} cannot be trained on, got {fault}; the log was "
            "changed, or its loop makes wrong masks: leave the row out with --where"
        )


def _find_fault(row: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """Returns what is wrong with columns of the right lengths; empty if nothing is."""
    mask, segments = record["response_mask"], [Segment(**segment) for segment in record["segments"]]
    bounds = [0, *(end for segment in segments for end in segment[:2]), len(mask)]
    if bounds[::2] != bounds[1::2]:
        return f"segments that leave gaps, or do not end at token {len(mask)}"
    if record["turn_ids"] != [segment.turn for segment in segments for _ in range(segment.start, segment.end)]:
        return "turns that differ from those of the segments"
    if not set(mask) <= {0, 1}:
        return "a mask with other values than 0 and 1"
    if sum(mask) != row["num_model_tokens"]:
        return "another number of tokens with mask 1 than that of the log"
    return find_trained_observation(mask, segments)
