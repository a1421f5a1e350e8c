"""Reader of a run's log: as a data frame, or line by line."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from verl_agentic.base.errors import DataError
from verl_agentic.log.arrow_batches import completed, to_batch
from verl_agentic.log.metric_log import MetricsLog
from verl_agentic.log.run_files import EVALUATION, choose_logs
from verl_agentic.log.schema import KEY, SCHEMAS, SUMMARY, TRAJECTORIES, UPDATES, VERSION
from verl_agentic.log.writer import FOLDER

if TYPE_CHECKING:
    import pandas as pd

_PLACE = pa.schema([("file", pa.int32()), ("batch", pa.int32()), ("row", pa.int32())])
_KEPT_BATCHES = 32
"""Decoded batches that a reader of records keeps."""
_SEARCHED = ("prompt", "turns", "final_answer", "error")


def load(run_dir: Path | str, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Returns a run's trajectories, one line per training row, with their training results.

    Args:
        run_dir: folder of the run; logs in subfolders are found.
        columns: names of `schema.TRAJECTORIES` and `schema.UPDATES`; None: all. Fewer are faster.

    Raises:
        DataError: the folder or its log does not exist, a column is unknown, or the log has another version.
    """
    names = [*TRAJECTORIES.names, *(n for n in UPDATES.names if n not in KEY)] if columns is None else list(columns)
    if unknown := sorted(set(names) - set(TRAJECTORIES.names) - set(UPDATES.names)):
        raise DataError(f"the log has no such columns, got {unknown}; known: {TRAJECTORIES.names + UPDATES.names}")
    log = RunLog(run_dir)
    trajectories = log.table("trajectories", [*KEY, *(n for n in names if n in TRAJECTORIES.names and n not in KEY)])
    updates = [n for n in UPDATES.names if n == "trained_step" or (n in names and n not in KEY)]
    table = (
        _join_updates(trajectories, log.table("updates", [*KEY, *updates]))
        if set(updates) & set(names)
        else trajectories
    )
    return table.select(names).to_pandas()


class RunLog:
    """The log of a run, which may still be written, or of all evaluations at or below a folder.

    A run's log has no evaluations that lie below its folder. The unique ids of an evaluation below the folder begin
    with its path. Of a session that was logged twice (a repeated void episode), only the last episode is read.
    """

    def __init__(self, run_dir: Path | str) -> None:
        """Reads the summaries.

        Raises:
            DataError: the folder or its log does not exist, or the log has another version.
        """
        self.run_dir = Path(run_dir)
        if not self.run_dir.is_dir():
            raise DataError(f"no such folder, got {self.run_dir}; name the folder of a run")
        self._files: dict[str, list[_File]] = {table: [] for table in SCHEMAS}
        self._columns: dict[str, pa.Table] = {}
        self.summaries: pa.Table = pa.table({})
        """A line per training row: `SUMMARY` of trajectories and updates, by step, uid, session and index."""
        self.refresh()
        if not self._files["trajectories"]:
            raise DataError(f"no trajectories are logged below {self.run_dir}; set agentic.log.dir in the run")

    def refresh(self) -> bool:
        """Reads new records; returns whether there were any."""
        has_new = [self._find_new_files(table) for table in SCHEMAS]
        has_new += [file.read() for files in self._files.values() for file in files]
        if any(has_new) or not self._columns:
            self._columns = {table: self._summarise_table(table) for table in SCHEMAS}
            trajectories = _drop_repeated(self._columns["trajectories"])
            joined = _join_updates(trajectories, _rename_places(self._columns["updates"]))
            self.summaries = joined.sort_by([("step", "ascending"), *((name, "ascending") for name in KEY)])
        return any(has_new)

    def record(self, row: int) -> dict[str, Any]:
        """Returns all columns of a line of `summaries`; those of updates are None without an update."""
        line = self.summaries.slice(row, 1).to_pylist()[0]
        record = self._read_record("trajectories", line, "")
        if line["update_file"] is None:
            return {**record, **{name: None for name in UPDATES.names if name not in KEY}}
        return {**record, **self._read_record("updates", line, "update_")}

    def records(self, rows: Sequence[int], columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yields columns of trajectories for lines of `summaries`, in their order."""

        @functools.lru_cache(maxsize=_KEPT_BATCHES)  # rows that are near in time are near on disk
        def batch(number: int, index: int) -> pa.RecordBatch:
            return self._files["trajectories"][number].batch(index).select(list(columns))

        for place in self.summaries.select(_PLACE.names).take(pa.array(rows, pa.int64())).to_pylist():
            yield batch(place["file"], place["batch"]).slice(place["row"], 1).to_pylist()[0]

    def search(self, text: str) -> list[int]:
        """Returns the lines of `summaries` whose prompt, turns, answer or error contain a text, in any case."""
        matches: set[tuple[int, int, int]] = set()
        for number, file in enumerate(self._files["trajectories"]):
            for index, batch in enumerate(file.batches(_SEARCHED)):
                matches.update((number, index, row) for row in _rows_with(batch, text))
        places = zip(*(self.summaries[name].to_pylist() for name in _PLACE.names), strict=True)
        return [row for row, place in enumerate(places) if place in matches]

    def table(self, table: str, columns: Sequence[str]) -> pa.Table:
        """Returns columns of one of the two tables."""
        names = list(dict.fromkeys([*columns, *KEY, "time"])) if table == "trajectories" else list(columns)
        batches = [batch for file in self._files[table] for batch in file.batches(names)]
        schema = pa.schema([SCHEMAS[table].field(name) for name in names])
        read = pa.Table.from_batches([batch.select(names) for batch in batches], schema=schema)
        return (_drop_repeated(read) if table == "trajectories" else read).select(list(columns))

    def _find_new_files(self, table: str) -> bool:
        known_paths = {file.path for file in self._files[table]}
        new = [
            _File(path=path, table=table, prefix=self._make_prefix(folder))
            for folder in choose_logs(self.run_dir)
            for path in sorted(folder.glob(f"{FOLDER}/{table}-*.arrows"))
            if path not in known_paths
        ]
        self._files[table] += new
        return bool(new)

    def _make_prefix(self, folder: Path) -> str:
        """Returns what unique ids begin with: evaluations of one task in several folders have equal ones."""
        is_below = folder != self.run_dir and (folder / EVALUATION).is_file()
        return f"{folder.relative_to(self.run_dir)}:" if is_below else ""

    def _summarise_table(self, table: str) -> pa.Table:
        schema = pa.unify_schemas([pa.schema([SCHEMAS[table].field(name) for name in SUMMARY[table]]), _PLACE])
        pieces = []
        for number, file in enumerate(self._files[table]):
            lines = pa.Table.from_batches(file.summaries, schema=pa.schema(list(schema)[: -len(_PLACE)]))
            counts = [batch.num_rows for batch in file.summaries]
            places = (
                np.full(sum(counts), number),
                np.repeat(np.arange(len(counts)), counts),
                np.concatenate([np.arange(count) for count in counts] or [np.arange(0)]),
            )
            columns = [*lines.columns, *(pa.array(place, type=pa.int32()) for place in places)]
            pieces.append(pa.Table.from_arrays(columns, schema=schema))
        return pa.concat_tables(pieces).combine_chunks() if pieces else schema.empty_table()

    def _read_record(self, table: str, line: Mapping[str, Any], prefix: str) -> dict[str, Any]:
        number, index, row = (line[f"{prefix}{name}"] for name in _PLACE.names)
        return self._files[table][number].batch(index).slice(row, 1).to_pylist()[0]


@dataclass(kw_only=True)
class _File:
    """A file with its read position."""

    path: Path
    table: str
    prefix: str = ""
    """Text before the unique ids."""
    size: int = 0
    summaries: list[pa.RecordBatch] = field(default_factory=list)
    """One of `SUMMARY` per batch."""

    def read(self) -> bool:
        """Reads new records; returns whether there were any."""
        size = self.path.stat().st_size if self.path.exists() else self.size
        if size == self.size:
            return False
        names, before = SUMMARY[self.table], len(self.summaries)
        for index, batch in enumerate(self.batches(names)):
            if index >= before:
                self.summaries.append(batch.select(list(names)))
        self.size = size
        return len(self.summaries) > before

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yields the batches, with some columns only; skips an incomplete last batch."""
        if not self.path.exists():
            return  # removed to limit the size of the log
        schema = SCHEMAS[self.table]
        target_schema = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        with pa.memory_map(str(self.path)) as source:
            try:
                file_schema = pa.ipc.read_schema(source)
                source.seek(0)
                included = [
                    file_schema.get_field_index(name) for name in target_schema.names if name in file_schema.names
                ]
                stream = pa.ipc.open_stream(source, options=pa.ipc.IpcReadOptions(included_fields=included))
            except (pa.ArrowInvalid, EOFError):
                return  # its header is not written yet
            _check_version(file_schema, self.path)
            while True:
                try:
                    yield self._with_prefix(completed(stream.read_next_batch(), target_schema))
                except StopIteration:
                    return
                except (pa.ArrowInvalid, OSError, EOFError):
                    return

    def batch(self, index: int) -> pa.RecordBatch:
        """Returns one batch with all columns, without decoding the batches before it."""
        with pa.memory_map(str(self.path)) as source:
            reader = pa.ipc.MessageReader.open_stream(source)
            schema = pa.ipc.read_schema(reader.read_next_message())
            for _ in range(index):
                reader.read_next_message()
            batch = pa.ipc.read_record_batch(reader.read_next_message(), schema)
            return self._with_prefix(completed(batch, SCHEMAS[self.table]))

    def _with_prefix(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        place = batch.schema.get_field_index("uid")
        if not self.prefix or place < 0:
            return batch
        uids = pc.call_function("binary_join_element_wise", [self.prefix, batch["uid"], ""])
        return batch.set_column(place, batch.schema.field(place), uids)


def write_run(
    folder: Path | str,
    *,
    trajectories: Sequence[Mapping[str, Any]] = (),
    updates: Sequence[Mapping[str, Any]] = (),
    metrics: Sequence[tuple[int, Mapping[str, float]]] = (),
    rows_per_batch: int = 64,
) -> Path:
    """Writes a log from plain records; returns its folder. Missing columns are empty.

    Raises:
        ValueError: a record has a key that is no column.
    """
    folder = Path(folder)
    for table, records in (("trajectories", trajectories), ("updates", updates)):
        if records:
            path = folder / FOLDER / f"{table}-written-0-00000000-00000.arrows"
            path.parent.mkdir(parents=True, exist_ok=True)
            options = pa.ipc.IpcWriteOptions(compression="zstd")
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, SCHEMAS[table], options=options) as stream:
                for start in range(0, len(records), rows_per_batch):
                    stream.write_batch(to_batch(records[start : start + rows_per_batch], SCHEMAS[table]))
    log = MetricsLog(folder)
    for step, values in metrics:
        log.append(step, values)
    return folder


def _join_updates(trajectories: pa.Table, updates: pa.Table) -> pa.Table:
    """Returns trajectories with the columns of each row's last update, null without one."""
    if updates.num_rows:
        updates = updates.take(_last_of_each(updates))
    # Arrow cannot join nested columns, so only row numbers are joined.
    trajectory_keys, update_keys = _join_keys(trajectories), _join_keys(updates)
    places = pc.call_function("index_in", [trajectory_keys], pc.SetLookupOptions(value_set=update_keys))
    added = [name for name in updates.column_names if name not in KEY]
    for name in added:
        trajectories = trajectories.append_column(name, updates[name].combine_chunks().take(places))
    return trajectories


def _drop_repeated(trajectories: pa.Table) -> pa.Table:
    """Returns the rows without those of earlier episodes of a session."""
    keys = _join_keys(trajectories)
    if len(pc.call_function("unique", [keys])) == len(keys):
        return trajectories
    sessions = list(zip(trajectories["uid"].to_pylist(), trajectories["session"].to_pylist(), strict=True))
    times = trajectories["time"].to_numpy().tolist()
    ends: dict[tuple[str, int], Any] = {}
    for session, time in zip(sessions, times, strict=True):
        ends[session] = max(time, ends.get(session, time))
    is_last = [time == ends[session] for session, time in zip(sessions, times, strict=True)]
    return trajectories.filter(pa.array(is_last))


def _join_keys(table: pa.Table) -> pa.Array:
    parts = [pc.cast(table[name], pa.string()) for name in KEY]
    return pc.call_function("binary_join_element_wise", [*parts, "_"]).combine_chunks()


def _last_of_each(updates: pa.Table) -> pa.Array:
    order = np.argsort(updates["trained_step"].to_numpy(), kind="stable").tolist()
    keys = _join_keys(updates).to_pylist()
    last = {keys[row]: row for row in order}
    return pa.array(sorted(last.values()), type=pa.int64())


def _rename_places(updates: pa.Table) -> pa.Table:
    return updates.rename_columns([f"update_{name}" if name in _PLACE.names else name for name in updates.column_names])


def _rows_with(batch: pa.RecordBatch, text: str) -> Iterator[int]:
    for row, record in enumerate(batch.select(list(_SEARCHED)).to_pylist()):
        if any(text.casefold() in value.casefold() for value in _iter_texts(record)):
            yield row


def _iter_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _iter_texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from _iter_texts(part)


def _check_version(schema: pa.Schema, path: Path) -> None:
    version = (schema.metadata or {}).get(b"version", b"none").decode()
    if version != str(VERSION):
        raise DataError(
            f"{path} must be of version {VERSION}, got {version}; read it with the verl_agentic that wrote it"
        )
