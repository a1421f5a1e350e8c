"""The page's data of one run, as plain JSON values."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from verl_agentic.base.errors import DataError
from verl_agentic.log.metric_log import read_metrics
from verl_agentic.log.reader import RunLog
from verl_agentic.log.run_files import ENDED
from verl_agentic.log.schema import KEY, SUMMARY, TRAJECTORIES, UPDATES
from verl_agentic.observe.viewer.detail import detail
from verl_agentic.observe.viewer.group_view import Groups, finite
from verl_agentic.observe.viewer.query import Query
from verl_agentic.observe.viewer.token_texts import find_tokenizer

pc: Any = pyarrow.compute  # makes its functions when it is imported: checkers do not see them

Key = tuple[str, int, str, int, int]
"""One trajectory as in links: the parts of `PLACE`."""
PLACE = ("split", "step", "uid", "session", "index")
_MAX_PAGE = 1_000
_KEPT = 32
"""Number of cached lists."""
_WATCHED = ("*.arrows", "metrics-*.jsonl", "health.jsonl")


def is_run(run_dir: Path) -> bool:
    """Returns whether a folder holds the log of a run, which may have only begun."""
    return any(next(run_dir.rglob(name), None) is not None for name in (*_WATCHED, ENDED))


class RunView:
    """A run's log behind one lock, because a page sends parallel requests."""

    def __init__(self, run_dir: Path, *, shown_as: Path | None = None) -> None:
        """Reads the summaries.

        Args:
            run_dir: folder of the run.
            shown_as: the folder that the page names, if the log is a copy.

        Raises:
            DataError: the folder does not exist, or its log has another version.
        """
        if not run_dir.is_dir():
            raise DataError(f"no such folder, got {run_dir}; name the folder of a run")
        self.run_dir, self._shown_as = run_dir, shown_as or run_dir
        self._lock = threading.RLock()
        self._log: RunLog | None = None
        self._revision = 0
        self._listings: dict[str, _GroupListing] = {}
        self.refresh()

    @property
    def groups(self) -> Groups:
        """The groups at the last read."""
        return self._groups

    def refresh(self) -> None:
        """Reads new data of the run."""
        with self._lock:
            self._seen = self._fingerprint_files()
            if self._log is not None:
                self._log.refresh()
            elif next(self.run_dir.rglob("trajectories/trajectories-*.arrows"), None) is not None:
                self._log = RunLog(self.run_dir)
            self._groups = Groups.of(_make_empty_summaries() if self._log is None else self._log.summaries)
            self._metrics = read_metrics(self.run_dir)
            self._findings = _read_findings(self.run_dir)
            self._tokenizer = find_tokenizer(self.run_dir)
            self._listings.clear()
            self._revision += 1

    def about(self) -> dict[str, Any]:
        """Returns the data of the page's frame: name, choices, findings, names of metrics."""
        with self._lock:
            table = self._groups.table
            return {
                "name": self._shown_as.resolve().name,
                "folder": str(self._shown_as),
                "revision": self._revision,
                "trajectories": table.num_rows,
                "groups": len(self._groups),
                "result": _summarise_result(table),
                "reward_range": _find_range(table["reward"]),
                "splits": _list_names(table["split"]),
                "stops": _list_names(table["stop_reason"]),
                "envs": _list_names(table["env"]),
                "tools": _list_names(pc.list_flatten(table["tools"])),
                "hacking": _list_names(pc.list_flatten(table["hacking"])),
                "breaches": pc.sum(pc.fill_null(pc.not_equal(table["breach"], ""), False)).as_py() or 0,
                "has_tokenizer": self._tokenizer is not None,
                "metrics": sorted({name for line in self._metrics for name in line} - {"step", "time"}),
                "findings": self._findings,
            }

    def has_news(self) -> bool:
        """Returns whether the run has written since `refresh`."""
        return self._fingerprint_files() != self._seen

    def list_groups(self, query: Query, *, offset: int, limit: int, around: Sequence[Any] = ()) -> dict[str, Any]:
        """Returns a page of the list.

        Args:
            query: which groups, in which order.
            offset: number of the first one.
            limit: maximum number of groups.
            around: split, step and uid of a group: `place` is its number in the list, None when it is not there.
        """
        listing = self._list_matching(query)
        page = listing.order[max(0, offset) : max(0, offset) + min(limit, _MAX_PAGE)]
        return {
            "revision": listing.revision,
            "total": len(listing.order),
            "trajectories": pc.sum(listing.matches).as_py() or 0,
            "offset": offset,
            "groups": listing.groups.lines([int(group) for group in page], listing.matches),
            "place": listing.place(around) if around else None,
        }

    def group(self, split: str, step: int, uid: str) -> list[dict[str, Any]]:
        """Returns the summaries of a group's rows. Raises DataError if there is no such group."""
        with self._lock:
            return self.summaries(_find_rows(self._groups.table, {"split": split, "step": step, "uid": uid}))

    def newest_group(self, task_id: str) -> list[dict[str, Any]]:
        """Returns the summaries of the newest training group of a task; empty if the run has none."""
        with self._lock:
            table = self._groups.table
            matches = pc.and_(pc.equal(table["task_id"], task_id), pc.equal(table["split"], "train"))
            rows = np.flatnonzero(pc.fill_null(matches, False).to_numpy())
            if not len(rows):
                return []
            newest = rows[np.argmax(table["step"].to_numpy()[rows])]
            return self.summaries(self._groups.rows(int(self._groups.of_row[newest])))

    def summaries(self, rows: Sequence[int] | np.ndarray) -> list[dict[str, Any]]:
        """Returns the summaries of lines."""
        names = [*SUMMARY["trajectories"], *(name for name in SUMMARY["updates"] if name not in KEY)]
        table = self._groups.table.select(names).take(pa.array(rows, pa.int64()))
        return [{name: finite(value) for name, value in line.items()} for line in table.to_pylist()]

    def trajectory(self, key: Key) -> dict[str, Any]:
        """Returns all of one trajectory. Raises DataError if there is no such trajectory."""
        with self._lock:
            return self.detail_of(int(_find_rows(self._groups.table, dict(zip(PLACE, key, strict=True)))[0]))

    def detail_of(self, row: int) -> dict[str, Any]:
        """Returns all of the trajectory at a line of the summaries."""
        with self._lock:
            assert self._log is not None
            return detail(self._log.record(row), self._tokenizer)

    def metrics(self, names: Sequence[str]) -> dict[str, Any]:
        """Returns `{"steps": [...], "values": {name: [...]}}`, None where a step has no such number."""
        with self._lock:
            steps = [line["step"] for line in self._metrics]
            return {"steps": steps, "values": {n: [finite(line.get(n)) for line in self._metrics] for n in names}}

    def record(self, row: int) -> Mapping[str, Any]:
        """Returns the log's own record of a line of the summaries."""
        with self._lock:
            assert self._log is not None
            return self._log.record(row)

    def matches(self, query: Query) -> pa.BooleanArray:
        """Returns for every line of the summaries whether it passes."""
        return self._list_matching(query).matches

    def _list_matching(self, query: Query) -> _GroupListing:
        """Returns the list of a query; a text search may take seconds and does not block other requests."""
        key = repr(query)
        while True:
            with self._lock:
                if key in self._listings:
                    return self._listings[key]
                log, groups, revision = self._log, self._groups, self._revision
            lines = log.search(query.text) if query.text and log is not None else []
            with self._lock:
                if revision != self._revision:
                    continue  # the lines that were found may have other numbers now
                matches = query.matches(groups.table, lines)
                order = groups.order(matches, sort=query.sort, descending=query.descending)
                if len(self._listings) >= _KEPT:
                    self._listings.clear()
                self._listings[key] = _GroupListing(revision, groups, matches, order)
                return self._listings[key]

    def _fingerprint_files(self) -> tuple[int, int]:
        sizes = []
        for pattern in _WATCHED:
            for path in self.run_dir.rglob(pattern):
                try:
                    sizes.append(path.stat().st_size)
                except OSError:
                    continue
        return len(sizes), sum(sizes)


@dataclass(frozen=True)
class _GroupListing:
    """The list of a query."""

    revision: int
    groups: Groups
    matches: pa.BooleanArray
    order: np.ndarray
    """Numbers of the groups."""

    def place(self, around: Sequence[Any]) -> int | None:
        """Returns the place of a group of that split, step and uid; None if it is not listed."""
        try:
            row = _find_rows(self.groups.table, dict(zip(PLACE[:3], around, strict=True)))[0]
        except DataError:
            return None
        places = np.flatnonzero(self.order == self.groups.of_row[row])
        return int(places[0]) if len(places) else None


def _find_rows(table: pa.Table, columns: Mapping[str, Any]) -> np.ndarray:
    matches = pc.equal(table["step"], columns["step"])
    for name, value in columns.items():
        matches = pc.and_(matches, pc.equal(table[name], value))
    rows = np.flatnonzero(pc.fill_null(matches, False).to_numpy())
    if not len(rows):
        raise DataError(f"the run has no such trajectory, got {dict(columns)}; it may be of another run")
    return rows


def _list_names(column: pa.ChunkedArray | pa.Array) -> list[str]:
    return sorted(filter(None, pc.unique(column).to_pylist()))


def _find_range(column: pa.ChunkedArray) -> list[float | None]:
    """Returns the smallest and the largest finite value."""
    bounds = pc.min_max(column.filter(pc.fill_null(pc.is_finite(column), False))).as_py()
    return [bounds["min"], bounds["max"]]


def _summarise_result(table: pa.Table) -> dict[str, Any]:
    """Returns the mean outcome of each training step, or of validation; without outcomes the mean reward."""
    is_train = pc.equal(table["split"], "train")
    chosen = table.filter(is_train) if pc.any(is_train).as_py() else table
    for name, column in (("outcome", "acc"), ("reward", "reward")):
        scored = chosen.filter(pc.fill_null(pc.is_finite(chosen[column]), False))
        if scored.num_rows:
            means = scored.group_by("step").aggregate([(column, "mean")]).sort_by("step")
            steps, values = means["step"].to_pylist(), means[f"{column}_mean"].to_pylist()
            return {"name": name, "points": [list(point) for point in zip(steps, values, strict=True)]}
    return {"name": "reward", "points": []}


def _make_empty_summaries() -> pa.Table:
    fields = [TRAJECTORIES.field(name) for name in SUMMARY["trajectories"]]
    fields += [UPDATES.field(name) for name in SUMMARY["updates"] if name not in KEY]
    return pa.schema(fields).empty_table()


def _read_findings(run_dir: Path) -> list[dict[str, Any]]:
    """Returns the health findings by step; incomplete lines are left out."""
    findings = []
    for path in sorted(run_dir.rglob("health.jsonl")):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                finding = json.loads(line)
            except ValueError:
                continue
            if isinstance(finding, dict) and isinstance(finding.get("step"), int):
                findings.append(finding)
    return sorted(findings, key=lambda finding: finding["step"])
