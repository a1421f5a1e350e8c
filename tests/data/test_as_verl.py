"""Files that others wrote: values that verl's dataset would change, and nulls that Arrow has filled in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import DataError
from verl_agentic.base.tools.function_tool import tool
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Message
from verl_agentic.cli import main
from verl_agentic.data.file_checks import null_arguments
from verl_agentic.data.overlap.write_kept import write_kept
from verl_agentic.log.files.as_verl import changed_values
from verl_agentic.log.files.parquet import env_row, extra_of, ground_truth_of
from verl_agentic.log.files.record_files import numbered_records, write_json_lines
from verl_agentic.log.files.rows import row_of_columns, write_rows


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    datasets.disable_progress_bars()
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def record(number: int, truth: Any = "1", **extra: Any) -> dict[str, Any]:
    return {
        "data_source": "made",
        "prompt": [{"role": "user", "content": f"Question {number}"}],
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {"index": number, **extra},
        "agent_name": "env_agent",
    }


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("values", "after"),
    [
        (["2024-01-02", "2024-01-03"], "datetime"),
        (["2024-01-02T10:00:00Z", "2024-01-03 10:00"], "datetime"),
        ([2**63, 1], "float"),
        ([1, 2.5], "float"),
        (["12", {"a": 1}], "int"),
        ([{"a": 0.123456789012}, {"b": 1}], "float"),
        ([["2024-01-02"], []], "datetime"),
    ],
)
@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
def test_values_that_verls_dataset_changes_are_named_with_column_and_remedy(
    tmp_path: Path, values: Sequence[Any], after: str, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for column, records in (
        ("reward_model.ground_truth", [record(number, value) for number, value in enumerate(values)]),
        ("extra_info.level", [record(number, level=value) for number, value in enumerate(values)]),
    ):
        path = tmp_path / f"rows{suffix}"
        if suffix == ".json":
            path.write_text(json.dumps(records))
        else:
            write_json_lines(records, path)
        (line, *_) = changed_values(path)
        assert column in line and f"({after}" in line and ".parquet" in line
        assert main(["prepare", "python_math", "--check", str(path)]) == 2
        assert column in capsys.readouterr().err
        if suffix == ".jsonl":
            assert main(["data", "check", str(path), "--jobs", "1"]) == 1
            assert column in capsys.readouterr().err


@pytest.mark.parametrize("values", [["2024-01-02", "unknown"], ["10:00", "11:00"], ["20240102"], [2**63 - 1, 1], [1.0]])
def test_values_that_arrive_are_not_named(tmp_path: Path, values: Sequence[Any]) -> None:
    write_json_lines([record(number, value) for number, value in enumerate(values)], tmp_path / "rows.jsonl")
    assert changed_values(tmp_path / "rows.jsonl") == []


def test_prompts_that_are_dates_are_written_as_parquet_only(tmp_path: Path) -> None:
    rows = [EnvRow(prompt=(Message("user", "2024-01-02"),), ground_truth="1", data_source="made")]
    with pytest.raises(DataError, match=r"prompt\[\].content"):
        write_rows(rows, tmp_path / "rows.jsonl")
    assert not list(tmp_path.glob("rows*"))
    write_rows(rows, tmp_path / "rows.parquet")
    ((_, read),) = numbered_records(tmp_path / "rows.parquet")
    assert row_of_columns(read, "row").prompt == rows[0].prompt


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1: "a"}, "keys of objects must be texts, got 1"),
        (b"x", "got bytes"),
        ({1, 2}, "got set"),
        ("\ud800", "Unicode"),
    ],
)
def test_values_that_no_file_can_hold_are_refused_by_field(tmp_path: Path, value: Any, message: str) -> None:
    rows = [EnvRow(prompt=(Message("user", "q"),), extra={"a": {"b": [value]}})]
    for name in ("rows.jsonl", "rows.parquet"):
        with pytest.raises(DataError, match=rf"row 0, extra.a.b\[0\]: .*{message}"):
            write_rows(rows, tmp_path / name)


def nested_json_rows() -> list[dict[str, Any]]:
    extra = [{"index": 0, "x": {"a": [1, "b"]}}, {"index": 1, "y": None}]
    return [{**record(number), "extra_info": extra[number]} for number in range(2)]


def test_columns_of_json_are_read_as_verls_dataset_reads_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, made = tmp_path / "rows.parquet", nested_json_rows()
    datasets.Dataset.from_generator(lambda: iter(made)).to_parquet(str(path))
    assert str(pq.read_schema(path).field("extra_info").type) == "extension<arrow.json>"
    records = [read for _, read in numbered_records(path)]
    assert records == made == list(datasets.load_dataset("parquet", data_files=str(path))["train"])
    assert [row_of_columns(read, "row").extra for read in records] == [made[0]["extra_info"], {"index": 1}]
    assert main(["data", "check", str(path), "--jobs", "1"]) == 0
    assert main(["prepare", "python_math", "--check", str(path)]) == 0, capsys.readouterr()
    is_kept = pa.array([False, True]).to_numpy(zero_copy_only=False)
    write_kept(path, is_kept, tmp_path / "kept.parquet")
    assert [read for _, read in numbered_records(tmp_path / "kept.parquet")] == made[1:]


def test_an_extra_info_that_arrived_as_text_is_refused(tmp_path: Path) -> None:
    for read in (extra_of, ground_truth_of):
        with pytest.raises(DataError, match=r"must be an object, got '\{"):
            read('{"index": 0}')  # pyright: ignore[reportArgumentType]


@tool
def ls(dir: str) -> str:
    """Lists a folder.

    Args:
        dir: its path.
    """
    return dir


@tool
def rm(path: str, force: bool | None = None, options: dict[str, str] | None = None) -> str:
    """Removes a file.

    Args:
        path: its path.
        force: whether to ask.
        options: more.
    """
    return f"{path}{force}{options}"


def call_prompt(name: str, arguments: Any) -> list[dict[str, Any]]:
    call = {"id": "c0", "type": "function", "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "done", "tool_call_id": "c0"},
    ]


def arguments_of(prompt: list[dict[str, Any]]) -> dict[str, Any]:
    row = env_row({**record(0), "raw_prompt": prompt})
    (message,) = [m for m in asyncio.run(ToolEnv(row, [ls, rm]).start()) if m.tool_calls]
    return dict(message.to_dict()["tool_calls"][0]["function"]["arguments"])


def test_nulls_that_arrow_filled_into_calls_are_dropped_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = [("ls", {"dir": "/"}), ("rm", {"path": "b", "force": True, "options": {"a": "x"}}), ("rm", {"path": "c"})]
    records = [{**record(number), "prompt": call_prompt(*call)} for number, call in enumerate(calls)]
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(records), path)
    read = [found for _, found in numbered_records(path)]
    arguments = [arguments_of(found["prompt"]) for found in read]
    assert arguments == [{"dir": "/"}, calls[1][1], {"path": "c", "force": None, "options": None}]
    problems = null_arguments("", read)
    assert [line.partition(",")[0] for line in problems] == ["row 0", "row 1", "row 2"]
    assert "the call of ls has null for ['force', 'options', 'path']" in problems[0]
    assert main(["prepare", "python_math", "--check", str(path)]) == 2
    assert "null" in capsys.readouterr().err


def test_nulls_of_json_text_and_nulls_that_no_other_call_uses_stay() -> None:
    assert arguments_of(call_prompt("rm", '{"path": null, "force": null}')) == {"path": None, "force": None}
    assert arguments_of(call_prompt("rm", {"path": "a", "force": None, "other": None})) == {"path": "a", "force": None}
    rows = [{**record(0), "prompt": call_prompt("rm", {"path": "a", "force": None})}]
    assert null_arguments("", rows) == []


def test_nulls_inside_objects_of_columns_are_keys_that_are_not_set() -> None:
    extra = {"index": 0, "a": {"x": 1, "y": None, "z": [{"u": None, "v": 2}, None]}, "b": None, "c": {"d": None}}
    assert extra_of(extra) == {"index": 0, "a": {"x": 1, "z": [{"v": 2}, None]}, "c": {}}
    assert extra_of({"extra_json": '{"a": {"y": null}}'}) == {"a": {"y": None}}
    assert ground_truth_of({"ground_truth": {"a": 1, "b": None}}) == {"a": 1}
    assert ground_truth_of({"ground_truth": '{"b": null}', "format": "json"}) == {"b": None}


def test_rows_with_keys_that_only_verl_reads_are_verified(tmp_path: Path) -> None:
    rows = [EnvRow(prompt=(Message("user", "q"),), ground_truth="1", extra={"tools_kwargs": {"f": {"a": 2**64}}})]
    with pytest.raises(DataError, match=r"tools_kwargs\.f\.a"):
        write_rows(rows, tmp_path / "rows.jsonl")
    rows = [replace(rows[0], extra={"tools_kwargs": {"f": {"a": 2}}})]
    assert write_rows(rows, tmp_path / "rows.jsonl") == 1


def test_floats_keep_their_digits_where_keys_of_messages_differ(tmp_path: Path) -> None:
    prompts = [(Message("user", "q"),), (Message("user", "q"), Message("tool", "1", name="f"), Message("user", "r"))]
    rows = [EnvRow(prompt=prompt, ground_truth=0.123456789012, extra={"x": 1.5e-7 / 3}) for prompt in prompts]
    write_rows(rows, tmp_path / "rows.jsonl")
    assert changed_values(tmp_path / "rows.jsonl") == []
    read = datasets.load_dataset("json", data_files=str(tmp_path / "rows.jsonl"))["train"]
    assert [env_row({**row, "raw_prompt": row["prompt"]}).ground_truth for row in read] == [0.123456789012] * 2
