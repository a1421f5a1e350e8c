"""Round trips of values that Arrow would fill or refuse: JSON lines, parquet and the reader that verl uses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import DataError
from verl_agentic.base.types import Message, ToolCall
from verl_agentic.log.files.parquet import extra_of, ground_truth_of, to_columns
from verl_agentic.log.files.rows import read_rows, row_of_columns, write_rows

ASKED = (Message("user", "q"),)
MIXED = [
    EnvRow(
        prompt=ASKED, ground_truth={"calls": [{"a": 1}]}, extra={"task_id": "x", "tools": {"calc": {"k": 1}}, "n": 1}
    ),
    EnvRow(prompt=ASKED, ground_truth=["b"], extra={"task_id": "y", "tools": {"find": None}, "n": "one"}),
    EnvRow(prompt=ASKED, ground_truth=None, extra={"task_id": "z", "only_here": 3, "none": None}),
]


def as_arrow_gives_them(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns records with the keys that Arrow adds to each."""
    import pyarrow as pa

    return pa.Table.from_pylist(records).to_pylist()


def test_what_has_one_simple_type_stays_readable() -> None:
    rows = [EnvRow(prompt=ASKED, ground_truth="1", extra={"task_id": "a", "level": 2, "tool_selection": ["f"]})] * 2
    (first, _) = to_columns(rows)
    assert first == {
        "data_source": "",
        "prompt": [{"role": "user", "content": "q"}],
        "reward_model": {"style": "rule", "ground_truth": "1"},
        "extra_info": {"task_id": "a", "level": 2, "tool_selection": ["f"], "index": 0},
    }


def test_what_differs_between_rows_comes_back_from_arrow_as_it_was() -> None:
    records = as_arrow_gives_them(to_columns(MIXED))
    for index, (row, record) in enumerate(zip(MIXED, records, strict=True)):
        read = row_of_columns(record, "row")
        assert read.ground_truth == row.ground_truth
        assert read.extra == {**row.extra, "index": index}


def test_without_encoding_arrow_would_have_spoiled_them() -> None:
    plain = [{"extra_info": {"tools": {"calc": {"k": 1}}}}, {"extra_info": {"tools": {"find": {"k": 2}}}}]
    assert as_arrow_gives_them(plain)[0]["extra_info"]["tools"] == {"calc": {"k": 1}, "find": None}


def test_a_key_that_some_rows_lack_stays_outside_and_its_filling_is_dropped() -> None:
    rows = [EnvRow(prompt=ASKED, extra={"hint": "h"}), EnvRow(prompt=ASKED, extra={})]
    records = as_arrow_gives_them(to_columns(rows))
    assert records[1]["extra_info"]["hint"] is None
    assert [row_of_columns(record, "row").extra for record in records] == [{"hint": "h", "index": 0}, {"index": 1}]


@pytest.mark.parametrize("values", [(1, 2.5), (True, 1), ("1", 1), ([1], [2]), (None, "a")])
def test_values_that_arrow_would_change_or_refuse_are_encoded(values: tuple[Any, Any]) -> None:
    rows = [EnvRow(prompt=ASKED, ground_truth=value, extra={"v": value}) for value in values]
    read = [row_of_columns(record, "row") for record in as_arrow_gives_them(to_columns(rows))]
    assert [(type(r.extra["v"]), r.extra["v"]) for r in read] == [(type(v), v) for v in values]
    assert [r.ground_truth for r in read] == list(values)


def test_files_with_the_same_shown_keys_have_the_same_columns_whatever_the_rows() -> None:
    shown = ("task_id",)
    simple = [EnvRow(prompt=ASKED, ground_truth="1", extra={"task_id": "a"})]
    numbers = [EnvRow(prompt=ASKED, ground_truth=7, extra={"task_id": "b", "level": 2})]
    for rows in (simple, numbers, MIXED):
        for row, record in zip(rows, to_columns(rows, shown=shown), strict=True):
            assert set(record["extra_info"]) == {"task_id", "extra_json", "index"}
            assert set(record["reward_model"]) == {"style", "ground_truth", "format"}
            read = row_of_columns(record, "row")
            assert (read.ground_truth, read.extra) == (
                row.ground_truth,
                {**row.extra, "index": record["extra_info"]["index"]},
            )


def test_arguments_of_calls_in_prompts_come_back_though_each_tool_has_its_own() -> None:
    prompt = (
        Message("user", "q"),
        Message("assistant", "", tool_calls=(ToolCall("f", {"a": 1}, "c0"), ToolCall("g", {"b": [2]}, "c1"))),
        Message("tool", "1", name="f", call_id="c0"),
    )
    (record,) = as_arrow_gives_them(to_columns([EnvRow(prompt=prompt, ground_truth="1")]))
    assert row_of_columns(record, "row").prompt == prompt


def test_mixed_rows_come_back_from_json_lines_as_verls_dataset_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.jsonl"
    write_rows(MIXED, path)
    assert [row.extra for row in read_rows(path)] == [{**row.extra, "index": i} for i, row in enumerate(MIXED)]
    import datasets

    read = datasets.load_dataset("json", data_files=str(path), cache_dir=str(tmp_path / "cache"))["train"]
    for row, record in zip(MIXED, read, strict=True):
        assert extra_of(record["extra_info"]) == {**row.extra, "index": record["extra_info"]["index"]}
        assert ground_truth_of(record["reward_model"]) == row.ground_truth


def test_columns_that_hold_no_json_are_named() -> None:
    with pytest.raises(DataError, match=r"extra_info\.extra_json"):
        extra_of({"extra_json": "{"}, "file:3")
    with pytest.raises(DataError, match="extra_json"):
        extra_of({"extra_json": "[1]"})
    with pytest.raises(DataError, match=r"reward_model\.ground_truth"):
        ground_truth_of({"ground_truth": "{", "format": "json"})
    assert ground_truth_of({"ground_truth": "{", "format": "text"}) == "{"
    assert extra_of(None) == {} and ground_truth_of(None) is None
    assert json.loads(to_columns(MIXED)[2]["extra_info"]["extra_json"]) == {"none": None}
