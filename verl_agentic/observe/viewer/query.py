"""Queries of the list of groups: filters on trajectories, and an order of groups."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute

from verl_agentic.base.errors import DataError

pc: Any = pyarrow.compute  # makes its functions when it is imported: checkers do not see them

RANGES = {
    "step": "step",
    "reward": "reward",
    "acc": "acc",
    "advantage": "mean_advantage",
    "length": "num_response_tokens",
}
"""Name of a range -> column of the summaries; `<name>_min` and `<name>_max` are the parameters, both inclusive."""
CHOICES = {"split": "split", "stop": "stop_reason", "env": "env"}
"""Name of a choice -> column; a repeated parameter accepts any of its values."""
LISTS = {"tool": "tools", "hacking": "hacking"}
"""Name of a choice -> column of lists; a trajectory passes with one of the values."""
FLAGS = ("void", "breach")
SORTS = ("step", "reward", "acc", "spread", "advantage", "length")

_Bounds = tuple[float | None, float | None]


@dataclass(frozen=True, kw_only=True)
class Query:
    """A query; a group is listed if one of its trajectories passes every filter."""

    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of `CHOICES` -> accepted values."""
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of `LISTS` -> values, one of which must be in the list."""
    ranges: Mapping[str, _Bounds] = field(default_factory=dict)
    """Names of `RANGES` -> bounds; an unknown value passes no bound."""
    flags: Mapping[str, bool] = field(default_factory=dict)
    """Names of `FLAGS` -> whether the trajectory must have it."""
    task: str = ""
    """Part of the task's id, the data source or the uid, in any case of letters."""
    text: str = ""
    """Part of the text of prompts, turns and answers."""
    sort: str = "step"
    descending: bool = True

    @classmethod
    def from_params(cls, params: Mapping[str, Sequence[str]]) -> Query:
        """Returns the query of a URL's parameters; other parameters are ignored.

        Raises:
            DataError: a bound that is not a number, an unknown flag or order.
        """
        last_values = {name: values[-1] for name, values in params.items() if values and values[-1] != ""}
        sort, order = last_values.get("sort", "step"), last_values.get("order", "desc")
        if sort not in SORTS or order not in ("asc", "desc"):
            raise DataError(f"unknown order of groups, got {sort!r} {order!r}; use one of {SORTS} with asc or desc")
        return cls(
            choices={name: tuple(filter(None, params[name])) for name in CHOICES if last_values.get(name)},
            lists={name: tuple(filter(None, params[name])) for name in LISTS if last_values.get(name)},
            ranges={name: bounds for name in RANGES if (bounds := _read_bounds(last_values, name)) != (None, None)},
            flags={name: _read_flag(name, last_values[name]) for name in FLAGS if name in last_values},
            task=last_values.get("task", ""),
            text=last_values.get("text", "").strip(),
            sort=sort,
            descending=order == "desc",
        )

    def matches(self, table: pa.Table, line_numbers: Sequence[int]) -> pa.BooleanArray:
        """Returns for every line of the summaries whether it passes.

        Args:
            table: summaries of a run.
            line_numbers: lines that contain the text; ignored without a text.
        """
        passed: list[pa.Array | pa.ChunkedArray] = []
        for name, values in self.choices.items():
            passed.append(pc.is_in(table[CHOICES[name]], value_set=pa.array(values, pa.string())))
        for name, values in self.lists.items():
            passed.append(_match_lists(table[LISTS[name]], values))
        for name, bounds in self.ranges.items():
            passed.extend(_filter_bounds(table[RANGES[name]], bounds))
        for name, expected in self.flags.items():
            has = table["is_void"] if name == "void" else pc.not_equal(table["breach"], "")
            passed.append(pc.equal(pc.fill_null(has, False), expected))
        if self.task:
            columns = [table[name] for name in ("task_id", "data_source", "uid")]
            named = [pc.match_substring(column, self.task, ignore_case=True) for column in columns]
            passed.append(pc.or_(pc.or_(named[0], named[1]), named[2]))
        if self.text:
            passed.append(_flag_lines(line_numbers, table.num_rows))
        result: pa.Array | pa.ChunkedArray = pa.array([True] * table.num_rows, pa.bool_())
        for column in passed:
            result = pc.and_(result, pc.fill_null(column, False))
        return result.combine_chunks() if isinstance(result, pa.ChunkedArray) else result


def _read_bounds(texts: Mapping[str, str], name: str) -> _Bounds:
    return _read_number(texts, f"{name}_min"), _read_number(texts, f"{name}_max")


def _read_number(texts: Mapping[str, str], name: str) -> float | None:
    if name not in texts:
        return None
    try:
        value = float(texts[name])
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise DataError(f"{name} must be a number, got {texts[name]!r}; fix the filter")
    return value


def _read_flag(name: str, value: str) -> bool:
    if value not in ("yes", "no"):
        raise DataError(f"{name} must be yes or no, got {value!r}; fix the filter")
    return value == "yes"


def _filter_bounds(column: pa.ChunkedArray, bounds: _Bounds) -> list[pa.ChunkedArray]:
    low, high = bounds
    passed = [] if low is None else [pc.greater_equal(column, low)]
    return passed + ([] if high is None else [pc.less_equal(column, high)])


def _match_lists(column: pa.ChunkedArray, values: Sequence[str]) -> pa.Array:
    """Returns for every list whether it has one of the values."""
    lists = column.combine_chunks()
    has = pc.is_in(pc.list_flatten(lists), value_set=pa.array(values, pa.string()))
    return _flag_lines(pc.filter(pc.list_parent_indices(lists), has).to_pylist(), len(lists))


def _flag_lines(numbers: Sequence[int], count: int) -> pa.Array:
    """Returns `[count]` True at the given numbers."""
    flags = bytearray(count)
    for number in numbers:
        flags[number] = 1
    return pc.cast(pa.array(flags, pa.uint8()), pa.bool_())
