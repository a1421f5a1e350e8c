"""The groups of a run, and their lines in the list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute

pc: Any = pyarrow.compute  # makes its functions when it is imported: checkers do not see them

_SHOWN = (
    "split", "step", "uid", "session", "index", "place", "env", "task_id", "data_source", "stop_reason", "is_void",
    "reward", "tools", "hacking", "breach",
)  # fmt: skip
_STATISTICS = {
    "reward": ("reward", "mean"),
    "spread": ("reward", "stddev"),
    "acc": ("acc", "mean"),
    "advantage": ("mean_advantage", "max"),
    "length": ("num_response_tokens", "mean"),
}
"""Order of groups -> column, and the aggregate of the siblings' values."""


@dataclass(frozen=True)
class Groups:
    """The trajectories of a run by group; groups are numbered in the order of the log."""

    table: pa.Table
    """Summaries, a line per training row."""
    of_row: np.ndarray
    """`[rows]` number of the group."""
    by_group: np.ndarray
    """`[rows]` lines, those of a group together."""
    starts: np.ndarray
    """`[groups + 1]` first index of each group in `by_group`."""
    statistics: dict[str, np.ndarray]
    """Name -> `[groups]`, NaN if unknown: over the last rows of valid sessions of the policy. Advantages are the
    largest absolute ones."""

    @classmethod
    def of(cls, table: pa.Table) -> Groups:
        """Returns the groups of a table of summaries."""
        of_row = _number_groups(table)
        count = int(of_row.max()) + 1 if len(of_row) else 0
        by_group = np.argsort(of_row, kind="stable")
        starts = np.searchsorted(of_row[by_group], np.arange(count + 1))
        return cls(table, of_row, by_group, starts, _compute_statistics(table, of_row, count))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def rows(self, group: int) -> np.ndarray:
        """Returns the lines of a group."""
        return self.by_group[self.starts[group] : self.starts[group + 1]]

    def order(self, matches: pa.BooleanArray, *, sort: str, descending: bool) -> np.ndarray:
        """Returns the groups that have a matching line, in order; unknown values come last."""
        listed = np.unique(self.of_row[np.flatnonzero(matches.to_numpy(zero_copy_only=False))])
        if sort == "step":
            steps = cast(np.ndarray, self.table["step"].to_numpy())[self.by_group[self.starts[:-1]]]
            values = steps.astype(np.float64)
        else:
            values = self.statistics[sort]
        keys = pa.table({"value": pa.array(values[listed], from_pandas=True), "number": listed})
        orders = [("value", "descending" if descending else "ascending"), ("number", "ascending")]
        return listed[pc.sort_indices(keys, sort_keys=orders).to_numpy()]

    def lines(self, groups: Sequence[int], matches: pa.BooleanArray) -> list[dict[str, Any]]:
        """Returns the list's data of some groups."""
        rows = [self.rows(group) for group in groups]
        if not rows:
            return []
        row_numbers = np.concatenate(rows)
        records = self.table.select(_SHOWN).take(pa.array(row_numbers)).to_pylist()
        hits = matches.take(pa.array(row_numbers)).to_pylist()
        lines, start = [], 0
        for group, members in zip(groups, rows, strict=True):
            end = start + len(members)
            lines.append(self._make_line(group, records[start:end], hits[start:end]))
            start = end
        return lines

    def _make_line(self, group: int, members: list[dict[str, Any]], hits: list[bool]) -> dict[str, Any]:
        first = next((member for member, hit in zip(members, hits, strict=True) if hit), members[0])
        last = [member for member in members if member["place"] == "last"] or members
        return {
            **{name: members[0][name] for name in ("split", "step", "uid", "env", "task_id", "data_source")},
            **{name: finite(float(values[group])) for name, values in self.statistics.items()},
            "sessions": len(last),
            "matching": sum(hits),
            "rows": len(members),
            "first": [first["session"], first["index"]],
            "rewards": [finite(member["reward"]) for member in last],
            "stops": Counter(member["stop_reason"] or "unknown" for member in last),
            "tools": sorted({tool for member in members for tool in member["tools"] or ()}),
            "voids": sum(bool(member["is_void"]) for member in last),
            "hacking": sorted({kind for member in members for kind in member["hacking"] or ()}),
            "breaches": sum(bool(member["breach"]) for member in members),
        }


def finite(value: Any) -> Any:
    """Returns the value; None for a number that JSON cannot represent."""
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def _number_groups(table: pa.Table) -> np.ndarray:
    """Returns `[rows]` the group number of every line; groups are numbered by their first lines."""
    if not table.num_rows:
        return np.zeros(0, dtype=np.int64)
    columns = [table["split"], table["step"], table["uid"]]
    codes = [pc.dictionary_encode(column).combine_chunks().indices.to_numpy().astype(np.int64) for column in columns]
    keys = (codes[0] * (codes[1].max() + 1) + codes[1]) * (codes[2].max() + 1) + codes[2]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def _compute_statistics(table: pa.Table, of_row: np.ndarray, count: int) -> dict[str, np.ndarray]:
    if not count:
        return {name: np.zeros(0) for name in _STATISTICS}
    counted = pc.and_(pc.equal(table["place"], "last"), pc.equal(pc.fill_null(table["is_void"], False), False))
    counted = pc.and_(counted, pc.equal(table["role"], "policy"))
    columns = {"group": pa.array(of_row)}
    for column in {column for column, _ in _STATISTICS.values()}:
        values = pc.cast(table[column], pa.float64())
        values = pc.if_else(pc.is_finite(values), values, None)
        columns[column] = pc.abs(values) if column == "mean_advantage" else values
    counted_rows = pa.table(columns).filter(pc.fill_null(counted, False))
    aggregates = counted_rows.group_by("group").aggregate(sorted(set(_STATISTICS.values())))
    group_numbers = aggregates["group"].to_numpy()
    statistics = {}
    for name, (column, how) in _STATISTICS.items():
        statistics[name] = np.full(count, np.nan)
        statistics[name][group_numbers] = pc.cast(aggregates[f"{column}_{how}"], pa.float64()).to_numpy()
    return statistics
