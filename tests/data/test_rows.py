"""Rows: what is written is what is read, and what cannot be read is named by file and line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import DataError
from verl_agentic.base.types import Message, ToolCall
from verl_agentic.log.files.record_files import read_json_lines, write_json_lines
from verl_agentic.log.files.rows import read_rows, write_rows

ROWS = [
    EnvRow(
        prompt=(Message("system", "Be brief."), Message("user", "6*7 = ?\u2028é")),
        ground_truth="42",
        data_source="python_math",
        extra={"task_id": "a", "split": "train"},
    ),
    EnvRow(
        prompt=(
            Message("user", "no answer"),
            Message("assistant", "", tool_calls=(ToolCall("python", {"code": "1"}, "c0"),)),
            Message("tool", "1", name="python", call_id="c0"),
        )
    ),
]


def test_rows_come_back_as_they_were_written_with_their_index_added(tmp_path: Path) -> None:
    path = tmp_path / "new" / "rows.jsonl"
    assert write_rows(ROWS, path) == 2
    first, second = read_rows(path)
    assert first == EnvRow(
        prompt=ROWS[0].prompt,
        ground_truth="42",
        data_source="python_math",
        extra={"task_id": "a", "split": "train", "index": 0},
    )
    assert second == EnvRow(prompt=ROWS[1].prompt, extra={"index": 1})


def test_a_row_has_the_columns_that_verls_dataset_and_reward_read(tmp_path: Path) -> None:
    write_rows(ROWS[:1], tmp_path / "rows.jsonl")
    ((number, row),) = read_json_lines(tmp_path / "rows.jsonl")
    assert number == 1
    assert row == {
        "data_source": "python_math",
        "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "6*7 = ?\u2028é"}],
        "reward_model": {"style": "rule", "ground_truth": "42"},
        "extra_info": {"task_id": "a", "split": "train", "index": 0},
    }


def test_prompts_in_openais_form_of_calls_are_read(tmp_path: Path) -> None:
    call = {"id": "c0", "type": "function", "function": {"name": "python", "arguments": '{"code": "1"}'}}
    row = {"prompt": [{"role": "assistant", "content": None, "tool_calls": [call]}], "reward_model": {}}
    write_json_lines([row], tmp_path / "rows.jsonl")
    ((message,),) = [r.prompt for r in read_rows(tmp_path / "rows.jsonl")]
    assert message == Message("assistant", "", tool_calls=(ToolCall("python", {"code": "1"}, "c0"),))


GOOD = json.dumps({"prompt": [{"role": "user", "content": "q"}], "reward_model": {"ground_truth": "1"}})
CUT = GOOD[:40]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (CUT, "is not JSON, got"),
        ("[1, 2]", r"is not a JSON object, got '\[1, 2\]"),
        ('{"prompt": []}', "'reward_model'"),
        (GOOD.replace('"user"', '"robot"'), "'robot'"),
        (GOOD.replace('"q"', '[{"type": "image"}]'), "content"),
        (GOOD.replace('"q"', "null"), "content"),
        (GOOD.replace('[{"role": "user", "content": "q"}]', '"q"'), "prompt"),
        (GOOD.replace('[{"role": "user", "content": "q"}]', "[]"), "prompt"),
        (GOOD.replace('{"ground_truth": "1"}', '"1"'), "reward_model"),
        (GOOD.replace('"q"', '"q", "tool_calls": [{"name": "f"}]'), "'name'"),
    ],
    ids=["cut", "array", "lacks", "role", "image", "null", "prompt-text", "prompt-empty", "reward-text", "call"],
)
def test_a_bad_line_is_named_by_file_and_number_with_what_was_found(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{GOOD}\n{line}\n{GOOD}\n")
    with pytest.raises(DataError, match=message) as caught:
        read_rows(path)
    assert f"{path}:2" in str(caught.value)


def test_a_file_of_another_kind_is_named_by_its_first_line(tmp_path: Path) -> None:
    path = tmp_path / "ROWS.PARQUET"  # verl does not take it for parquet either
    path.write_bytes(b"PAR1\xcc\x00\n")
    with pytest.raises(DataError, match=r"PARQUET:1 is not JSON, got 'PAR1"):
        read_rows(path)


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.jsonl"):
        read_rows(tmp_path / "gone.jsonl")


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write_json_lines([{"old": 1}], path)

    def broken() -> Iterator[dict[str, Any]]:
        yield {"new": 1}
        raise OSError("source gone")

    with pytest.raises(OSError, match="source gone"):
        write_json_lines(broken(), path)
    assert list(read_json_lines(path)) == [(1, {"old": 1})]
